"""The loop: everything a run still needs, in order, until it is done or has to stop.

Environments and models come first, side by side, while nothing is timed; then memory
launches; then the timed launches, one by one. What ends is on the disk before the next
thing begins, so a run can be stopped by anything (Ctrl-C, kill -9, a full disk) and
`run_sweep` on the same store goes on where it was. What came from outside (a kill, a
full disk) and what has no environment or artefact is then tried again; what a worker
itself reported is not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from matrix.catalog.types import Catalog
from matrix.config.sweep import SweepConfig
from matrix.environments.base import Backend
from matrix.errors import EngineLost, MatrixError, StorageError
from matrix.execution.cancel import Cancel
from matrix.execution.dispatch import run_task as run_anywhere
from matrix.machine import load
from matrix.records import OPERATOR
from matrix.store.formats import Outcome
from matrix.store.runs import RunStore
from matrix.sweep.checking import Checks
from matrix.sweep.interrupts import Interrupts
from matrix.sweep.launching import RunTask
from matrix.sweep.observer import Observer, Silent
from matrix.sweep.outcome import SweepOutcome
from matrix.sweep.preparing import Preparer
from matrix.sweep.rounds import Rounds
from matrix.sweep.session import begin_session, end_session
from matrix.sweep.stages import Stages
from matrix.sweep.stopping import Stop, StopConditions

Schedule = Callable[[Stages, dict[str, float]], None]
"""Makes the launches of a session; adds its seconds by stage. Raises Stop, StorageError, EngineLost."""


def run_sweep(
    config: SweepConfig,
    catalog: Catalog,
    *,
    store: RunStore,
    backend: Backend,
    artefacts: Callable[[str], Preparer],
    observer: Observer | None = None,
    budget_s: float | None = None,
    run_task: RunTask = run_anywhere,
    schedule: Schedule | None = None,
) -> SweepOutcome:
    """Do what is left of the run in `store`: all of a new one, the rest of one that was stopped.

    Never raises for what happens to a cell, for a full disk, a lost engine or a stop request: the
    outcome says it, with the exit code. `artefacts` gives the artefact store for the
    content key of the environment that makes them ("" when it could not be built).
    `budget_s`: nothing is begun after so many seconds, and cells that are not done then
    are `not_run`. `schedule` makes the launches; the default is a sweep's: memory, then
    block after block.
    """
    observer = observer or Silent()
    began = load.snapshot()
    cancel = Cancel()
    stages: dict[str, float] = {}
    outcome: Outcome
    error: MatrixError | None = None
    with Interrupts(cancel, observer.close) as interrupts:
        try:
            begin_session(store, began)
            sweep = Stages(
                config,
                catalog,
                store=store,
                backend=backend,
                artefacts=artefacts,
                observer=observer,
                stop=StopConditions(cancel, budget_s),
                interrupts=interrupts,
                run_task=run_task,
            )
            with backend.session(store.header.id):
                outcome = _run(sweep, schedule or blocks, stages)
        except (StorageError, EngineLost) as broken:
            outcome, error = "broken_off", broken
        finally:
            observer.close()
        ended = end_session(store, catalog, outcome, began=began, stages=stages, error=error)
    cancel.close()
    return ended


def checks(stages: Stages, seconds: dict[str, float]) -> None:
    """What is right or wrong comes first: the operator cells that were not checked yet."""
    if not any(cell.workload.level == OPERATOR for cell in stages.runnable):
        return
    with timed(seconds, "checks"):
        Checks(
            stages.runnable,
            store=stages.store,
            launcher=stages.launcher,
            ledger=stages.ledger,
            observer=stages.observer,
            stop=stages.stop,
        ).run()


def blocks(stages: Stages, seconds: dict[str, float]) -> None:
    """The schedule of a sweep: correctness, memory, then one block of every open cell after another."""
    rounds = Rounds(
        stages.runnable,
        store=stages.store,
        launcher=stages.launcher,
        ledger=stages.ledger,
        observer=stages.observer,
        stop=stages.stop,
    )
    checks(stages, seconds)
    if not any(cell.timed for cell in stages.runnable):
        return
    with timed(seconds, "memory"):
        stages.null_adapter()
        stages.peaks()
        rounds.memory()
    with timed(seconds, "timed"):
        for block in range(stages.store.header.blocks):
            rounds.block(block)


def _run(stages: Stages, schedule: Schedule, seconds: dict[str, float]) -> Outcome:
    """All stages; how the session ended. Raises StorageError, EngineLost."""
    try:
        if not stages.open_cells():
            return "complete"
        with timed(seconds, "environments"):
            stages.environments()
        with timed(seconds, "models"):
            stages.artefacts()
        schedule(stages, seconds)
    except Stop as stop:
        return stop.outcome
    except KeyboardInterrupt:
        return "interrupted"
    return "interrupted" if stages.stop.cancel.is_set() else "complete"


@contextlib.contextmanager
def timed(stages: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        stages[name] = stages.get(name, 0.0) + time.monotonic() - began
