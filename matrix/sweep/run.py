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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from matrix.catalog.types import Catalog
from matrix.config.sweep import SweepConfig
from matrix.environments.base import Backend, BuildFailed, BuiltEnvironment
from matrix.errors import EngineLost, MatrixError, StorageError
from matrix.estimate import artefact_environment
from matrix.execution.cancel import Cancel
from matrix.execution.dispatch import run_task as run_anywhere
from matrix.machine import load
from matrix.records import Cell
from matrix.store.formats import Outcome
from matrix.store.runs import RunStore
from matrix.sweep.interrupts import Interrupts
from matrix.sweep.launching import STALL_S, ArtefactKey, Launcher, RunTask
from matrix.sweep.ledger import Ledger
from matrix.sweep.observer import Observer, Silent
from matrix.sweep.outcome import SweepOutcome
from matrix.sweep.overhead import null_adapter_cost
from matrix.sweep.preparing import Preparer, Wanted, build_environments, prepare_artefacts
from matrix.sweep.rounds import TAKEN_AWAY, Rounds
from matrix.sweep.session import begin_session, end_session
from matrix.sweep.stopping import Stop, StopConditions
from matrix_adapters.protocol import Reason, Result, State, Task

#: one artefact task: a large model on a slow disk may need this long
ARTEFACT_TIMEOUT_S = 1800.0


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
) -> SweepOutcome:
    """Do what is left of the run in `store`: all of a new one, the rest of one that was stopped.

    Never raises for what happens to a cell, for a full disk, a lost engine or a stop request: the
    outcome says it, with the exit code. `artefacts` gives the artefact store for the
    content key of the environment that makes them ("" when it could not be built).
    `budget_s`: nothing is begun after so many seconds, and cells that are not done then
    are `not_run`.
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
            sweep = _Sweep(
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
                outcome = sweep.run(stages)
        except (StorageError, EngineLost) as broken:
            outcome, error = "broken_off", broken
        finally:
            observer.close()
        ended = end_session(store, catalog, outcome, began=began, stages=stages, error=error)
    cancel.close()
    return ended


class _Sweep:
    """One session on a run."""

    def __init__(
        self,
        config: SweepConfig,
        catalog: Catalog,
        *,
        store: RunStore,
        backend: Backend,
        artefacts: Callable[[str], Preparer],
        observer: Observer,
        stop: StopConditions,
        interrupts: Interrupts,
        run_task: RunTask,
    ) -> None:
        self._catalog, self._store = catalog, store
        self._backend, self._artefact_store, self._observer = backend, artefacts, observer
        self._stop, self._interrupts, self._run_task = stop, interrupts, run_task
        cells = store.cells()
        self._runnable = [cell for cell in cells if cell.state is None]
        _belong_to(cells, config, catalog)
        self._ledger = Ledger(cells, store.attempts.launches, store.header.blocks)
        self._models = {model.name: model for model in config.models}
        self._launcher = Launcher(
            store=store,
            catalog=catalog,
            config=config,
            models=self._models,
            run_task=run_task,
            cancel=stop.cancel,
        )
        self._maker: BuiltEnvironment | BuildFailed | None = None

    def run(self, stages: dict[str, float]) -> Outcome:
        """All stages, their seconds in `stages`; how the session ended. Raises StorageError."""
        rounds = Rounds(
            self._runnable,
            store=self._store,
            launcher=self._launcher,
            ledger=self._ledger,
            observer=self._observer,
            stop=self._stop,
        )
        try:
            if not self._open_cells():
                return "complete"
            with _timed(stages, "environments"):
                self._environments()
            with _timed(stages, "models"):
                self._artefacts()
            with _timed(stages, "memory"):
                self._null_adapter()
                rounds.memory()
            with _timed(stages, "timed"):
                for block in range(self._store.header.blocks):
                    rounds.block(block)
        except Stop as stop:
            return stop.outcome
        except KeyboardInterrupt:
            return "interrupted"
        return "interrupted" if self._stop.cancel.is_set() else "complete"

    def _open_cells(self) -> list[Cell]:
        return [cell for cell in self._runnable if self._ledger.is_open(cell)]

    def _environments(self) -> None:
        wanted = dict.fromkeys(cell.environment for cell in self._open_cells())
        maker = artefact_environment(self._catalog)
        built = build_environments(
            self._backend,
            list(dict.fromkeys([*wanted, *([maker] if maker else [])])),
            store=self._store,
            catalog=self._catalog,
            observer=self._observer,
            interrupts=self._interrupts,
        )
        self._maker = built.get(maker) if maker else None
        for environment, outcome in built.items():
            if not isinstance(outcome, BuildFailed):
                self._launcher.environments[environment] = outcome
        for cell in self._open_cells():
            if cell.environment not in self._launcher.environments:
                self._ledger.close(cell)
        self._stop.check()

    def _artefacts(self) -> None:
        wanted: dict[ArtefactKey, Wanted] = {}
        for cell in self._open_cells():
            key = self._launcher.key(cell)
            model = self._models[cell.workload.subject]
            wanted.setdefault(key, Wanted(model=model, workload=cell.workload, consumes=key[3]))
        made_by = "" if self._maker is None or isinstance(self._maker, BuildFailed) else self._maker.key
        self._launcher.artefacts = prepare_artefacts(
            self._artefact_store(made_by),
            wanted.values(),
            run=self._make,
            store=self._store,
            observer=self._observer,
            cancel=self._stop.cancel,
        )
        self._stop.check()
        for cell in self._open_cells():
            if self._launcher.key(cell) not in self._launcher.artefacts:
                self._ledger.close(cell)

    def _make(self, task: Task, out: Path) -> Result:
        """Run one task of the artefact store in the maker's environment."""
        maker = self._maker
        if maker is None or isinstance(maker, BuildFailed):
            why = maker.reason.text if maker else "the catalog has none for the CPU"
            text = f"the environment that makes models is missing: {why}"
            return Result(state=State.BUILD_FAILED, reason=Reason(code="no_maker", text=text))
        model = task.model.name if task.model else "no model"
        folder = self._store.scratch()

        def make() -> Result:
            return run_anywhere(
                maker,
                task,
                folder,
                out_dir=out,
                timeout_s=ARTEFACT_TIMEOUT_S,
                stall_s=STALL_S,
                on_phase=lambda phase: self._observer.say(f"{model}: {phase}"),
                cancel=self._stop.cancel,
            )

        try:
            result = make()
            return make() if result.reason is not None and result.reason.code in TAKEN_AWAY else result
        finally:
            self._store.drop_scratch(folder)

    def _null_adapter(self) -> None:
        if self._store.header.null_adapter or not self._launcher.environments:
            return
        environment, built = min(self._launcher.environments.items(), key=lambda item: item[0].name)
        with self._observer.still():
            cost = null_adapter_cost(
                environment.name,
                built,
                store=self._store,
                run_task=self._run_task,
                cancel=self._stop.cancel,
            )
        self._stop.check()
        self._store.update_header(null_adapter=cost)


def _belong_to(cells: Iterable[Cell], config: SweepConfig, catalog: Catalog) -> None:
    """Raises StorageError for a plan that is not this sweep's: files of two runs, or damaged ones."""
    models = {model.name for model in config.models}
    for cell in cells:
        if cell.workload.subject not in models:
            raise StorageError(f"the plan has a model {cell.workload.subject!r}, its sweep has none")
        if cell.environment.framework not in catalog.frameworks:
            raise StorageError(f"there is no framework {cell.environment.framework!r} any more")


@contextlib.contextmanager
def _timed(stages: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        stages[name] = stages.get(name, 0.0) + time.monotonic() - began
