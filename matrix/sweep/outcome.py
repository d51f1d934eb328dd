"""How a sweep ended, and what the process says about it with its exit code."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from matrix.errors import ExitCode, MatrixError, UsageError
from matrix.paths import results_dir
from matrix.store.formats import Outcome
from matrix_adapters.protocol import State

#: states that make `matrix run` exit 1
BAD = frozenset({State.INCORRECT, State.BUILD_FAILED, State.FAILED, State.OOM, State.TIMEOUT})


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CellEnd:
    """The part of a record that decides the exit code."""

    id: str
    state: State
    required: bool = False
    xfail: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """What `run_sweep` returns: where the run lies and how it ended."""

    folder: Path
    run: str  # its id
    outcome: Outcome
    exit_code: ExitCode
    states: dict[State, int]
    error: MatrixError | None = None  # why it was broken off

    @property
    def resume_command(self) -> str:
        """What continues this run when typed where it was begun; empty when it is complete."""
        if self.outcome == "complete":
            return ""
        run = "nox -s matrix --" if os.environ.get("NOX_CURRENT_SESSION") == "matrix" else "matrix run"
        results = self.folder.parent
        with contextlib.suppress(UsageError):  # the current folder may be gone
            if results == results_dir():
                return f"{run} --resume {self.run}"
        return f"{run} --resume {self.run} --results {shlex.quote(str(results))}"


def exit_code(outcome: Outcome, cells: Iterable[CellEnd]) -> ExitCode:
    """The promised exit code.

    130 interrupted; 3 broken off; 1 when any cell ended in a state of `BAD`, or a
    required one is not ok; else 0. A cell with `xfail` is left out of account.
    """
    if outcome == "interrupted":
        return ExitCode.INTERRUPTED
    if outcome in ("broken_off", "running"):
        return ExitCode.INCOMPLETE
    for cell in cells:
        if not cell.xfail and (cell.state in BAD or (cell.required and cell.state is not State.OK)):
            return ExitCode.VERDICT
    return ExitCode.OK


def count_states(cells: Iterable[CellEnd]) -> dict[State, int]:
    """Cells by state, only states that occur, in the order of `State`."""
    counts = collections.Counter(cell.state for cell in cells)
    return {state: counts[state] for state in State if counts[state]}
