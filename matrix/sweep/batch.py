"""One correctness batch while it runs: a worker that checks many operator cases, and what it has written.

The worker appends a line to `out/cases.jsonl` when a case begins and one when it has ended, and the
outputs of case n to `out/<n>.npz`. Lines are read as they come, so what has ended is judged and stored
while the next case runs. From outside (a container) they may all come at the end; nothing depends on it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matrix.execution.cancel import Cancel
from matrix.records import Cell, Environment
from matrix.sweep.checked import Answer, answer_of
from matrix_adapters.protocol import ProtocolError, Reason, Result, State

CASES_FILE = "cases.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Cells to be checked in one process: the same environment, variant and number of threads."""

    environment: Environment
    variant: str
    threads: int
    cells: tuple[Cell, ...]
    alone: bool = False  # nothing may run beside it: it was crowded out before
    retried: bool = False  # its environment was taken away before: not a third time
    fruitless: int = 0  # launches in a row that ended in their first case

    @property
    def label(self) -> str:
        variant = f" [{self.variant}]" if self.variant else ""
        return f"{self.environment.name}{variant} {self.threads}t"

    def with_cells(
        self, cells: Sequence[Cell], *, alone: bool = False, retried: bool = False, fruitless: int = 0
    ) -> Batch:
        """The same process, asked for other cases."""
        return dataclasses.replace(
            self, cells=tuple(cells), alone=alone, retried=retried, fruitless=fruitless
        )


class Running:
    """A batch that was started: reads what it leaves, and stops it when one case takes too long."""

    def __init__(self, batch: Batch, folder: Path, *, name: str, case_s: float, crowded: bool) -> None:
        self.batch, self.folder, self.out = batch, folder, folder / "out"
        self.name = name  # of its log
        self.cancel = Cancel()  # of this launch alone
        self.crowded = crowded  # another one ran beside it
        self.future: concurrent.futures.Future[Result]
        self.left: dict[int, Cell] = dict(enumerate(batch.cells))
        self.in_hand: int | None = None
        self.came_through = 0
        self.versions: Mapping[str, str] = {}  # as read inside, once it has said them
        self.overdue = False
        self._case_s, self._since = case_s, time.monotonic()
        self._offset = 0

    def ended_cases(self) -> Iterator[tuple[int, Cell, Answer]]:
        """The cases that have ended since it was asked last, with what the worker says of them.

        What is no such line is passed over: its case counts as one that the worker did not come through.
        """
        for line in self._new_lines():
            number, versions = line.get("case"), line.get("versions")
            if isinstance(versions, dict):
                self.versions = {str(name): str(version) for name, version in versions.items()}
            if not isinstance(number, int) or number not in self.left:
                continue
            self._since = time.monotonic()
            if line.get("begin"):
                self.in_hand = number
                continue
            if self.in_hand == number:
                self.in_hand = None
            self.came_through += 1
            yield number, self.left.pop(number), _answer(line)

    def arrays(self, number: int) -> Path:
        """Where the outputs of a case are."""
        return self.out / f"{number}.npz"

    def check_time(self) -> None:
        """Stop it when the case in hand (or its start) has taken longer than one launch may."""
        if not self.overdue and time.monotonic() - self._since > self._case_s:
            self.overdue = True
            self.cancel.set()

    def ending(self, result: Result) -> Result:
        """How it ended, when it was stopped for being too slow."""
        if not self.overdue or result.state is not State.INTERRUPTED:
            return result
        text = f"not done after {self._case_s:.0f} s, the time allowed"
        return dataclasses.replace(result, state=State.TIMEOUT, reason=Reason(code="deadline", text=text))

    def close(self) -> None:
        """Nothing waits for it any more."""
        self.cancel.close()

    def _new_lines(self) -> Iterator[dict[str, object]]:
        try:
            with (self.out / CASES_FILE).open("rb") as stream:
                stream.seek(self._offset)
                text = stream.read()
        except OSError:  # not yet
            return
        whole = text.rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            try:
                data = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(data, dict):
                yield data


def _answer(line: dict[str, object]) -> Answer:
    try:
        return answer_of(line)
    except ProtocolError as error:
        reason = Reason(code="broken_result", text=f"what the worker wrote of it is broken: {error}")
        return Answer(state=State.FAILED, reason=reason)
