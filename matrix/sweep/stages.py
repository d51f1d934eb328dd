"""What a session does before anything is timed, whatever is timed then: environments, models, our own cost.

The sweep and the A/B run share it; they differ in the schedule of their launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from matrix.artefacts.operator_store import PreparedCase
from matrix.catalog.types import Catalog
from matrix.config.sweep import SweepConfig
from matrix.environments.base import Backend, BuildFailed, BuiltEnvironment
from matrix.errors import StorageError
from matrix.estimate import artefact_environment
from matrix.execution.dispatch import run_task as run_anywhere
from matrix.operators.expand import CatalogCase
from matrix.operators.load import load_operators
from matrix.operators.suites import peak_cases
from matrix.records import CONTROL, OPERATOR, Cell
from matrix.store.runs import RunStore
from matrix.sweep.interrupts import Interrupts
from matrix.sweep.launching import STALL_S, ArtefactKey, Launcher, RunTask
from matrix.sweep.ledger import Ledger
from matrix.sweep.observer import Observer
from matrix.sweep.overhead import null_adapter_cost
from matrix.sweep.peaks import machine_peaks
from matrix.sweep.preparing import (
    Preparer,
    Wanted,
    build_environments,
    prepare_artefacts,
    prepare_operators,
)
from matrix.sweep.rounds import TAKEN_AWAY
from matrix.sweep.stopping import StopConditions
from matrix_adapters.protocol import Reason, Result, State, Task

#: one artefact task: a large model on a slow disk may need this long
ARTEFACT_TIMEOUT_S = 1800.0


class Stages:
    """One session on a run: its cells, what is known of them, and what they need."""

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
        self.catalog, self.store, self.observer, self.stop = catalog, store, observer, stop
        self._backend, self._artefact_store = backend, artefacts
        self._interrupts, self._run_task = interrupts, run_task
        cells = store.cells()
        self.runnable = [cell for cell in cells if cell.state is None]
        _belong_to(cells, config, catalog)
        self.ledger = Ledger(cells, store.attempts.launches, store.header.blocks)
        self._is_open = self.ledger.may_run if store.header.comparison else self.ledger.is_open
        self._models = {model.name: model for model in config.models}
        self.launcher = Launcher(
            store=store,
            catalog=catalog,
            config=config,
            models=self._models,
            run_task=run_task,
            cancel=stop.cancel,
        )
        self._maker: BuiltEnvironment | BuildFailed | None = None

    def open_cells(self) -> list[Cell]:
        """The cells of which something is still to be done."""
        return [cell for cell in self.runnable if self._is_open(cell)]

    def environments(self) -> None:
        """Build what open cells need, side by side; cells without an environment are closed."""
        wanted = dict.fromkeys(cell.environment for cell in self.open_cells())
        maker = artefact_environment(self.catalog)
        built = build_environments(
            self._backend,
            list(dict.fromkeys([*wanted, *([maker] if maker else [])])),
            store=self.store,
            catalog=self.catalog,
            observer=self.observer,
            interrupts=self._interrupts,
        )
        self._maker = built.get(maker) if maker else None
        for environment, outcome in built.items():
            if not isinstance(outcome, BuildFailed):
                self.launcher.environments[environment] = outcome
        for cell in self.open_cells():
            if cell.environment not in self.launcher.environments:
                self.ledger.close(cell)
        self.stop.check()

    def artefacts(self) -> None:
        """Make or find weights, inputs and references; cells without them are closed."""
        wanted: dict[ArtefactKey, Wanted] = {}
        for cell in self.open_cells():
            if cell.workload.level in (CONTROL, OPERATOR):
                continue
            key = self.launcher.key(cell)
            model = self._models[cell.workload.subject]
            wanted.setdefault(key, Wanted(model=model, workload=cell.workload, consumes=key[3]))
        preparer = self._artefact_store(self._made_by)
        self.launcher.artefacts = prepare_artefacts(
            preparer,
            wanted.values(),
            run=self._make,
            store=self.store,
            observer=self.observer,
            cancel=self.stop.cancel,
        )
        self.stop.check()
        self._operators(preparer)
        for cell in self.open_cells():
            if not self.launcher.has_artefacts(cell):
                self.ledger.close(cell)

    def _operators(self, preparer: Preparer) -> None:
        """The same of operator cases: one set of files serves every framework."""
        wanted: dict[tuple[str, str], CatalogCase] = {}
        for cell in self.open_cells():
            if cell.workload.level == OPERATOR:
                case = self.launcher.case(cell)
                wanted.setdefault(case.key, case)
        if not wanted:
            return
        self.launcher.operators = prepare_operators(
            preparer,
            list(wanted.values()),
            run=self._make,
            store=self.store,
            observer=self.observer,
            cancel=self.stop.cancel,
        )
        self.stop.check()

    def _make(self, task: Task, out: Path) -> Result:
        """Run one task of the artefact store in the maker's environment."""
        maker = self._maker
        if maker is None or isinstance(maker, BuildFailed):
            why = maker.reason.text if maker else "the catalog has none for the CPU"
            text = f"the environment that makes models is missing: {why}"
            return Result(state=State.BUILD_FAILED, reason=Reason(code="no_maker", text=text))
        model = task.model.name if task.model else "operators"
        folder = self.store.scratch()

        def make() -> Result:
            return run_anywhere(
                maker,
                task,
                folder,
                out_dir=out,
                timeout_s=ARTEFACT_TIMEOUT_S,
                stall_s=STALL_S,
                on_phase=lambda phase: self.observer.say(f"{model}: {phase}"),
                cancel=self.stop.cancel,
            )

        try:
            result = make()
            return make() if result.reason is not None and result.reason.code in TAKEN_AWAY else result
        finally:
            self.store.drop_scratch(folder)

    def null_adapter(self) -> None:
        """Measure what our own loop costs, once a run."""
        if self.store.header.null_adapter or not self.launcher.environments:
            return
        environment, built = min(self.launcher.environments.items(), key=lambda item: item[0].name)
        with self.observer.still():
            cost = null_adapter_cost(
                environment.name,
                built,
                store=self.store,
                run_task=self._run_task,
                cancel=self.stop.cancel,
            )
        self.stop.check()
        self.store.update_header(null_adapter=cost)

    def peaks(self) -> None:
        """Measure what the machine can, once a run that times operators; what fails costs no cell."""
        timed = [c for c in self.runnable if c.timed and c.workload.level == OPERATOR]
        usable = {c.environment: self.launcher.environments.get(c.environment) for c in timed}
        known = self.store.header.peaks
        counts = [n for n in dict.fromkeys(c.workload.threads for c in timed) if str(n) not in known]
        if not counts or not any(usable.values()):
            return
        types = {cell.workload.precision for cell in timed}
        cases = peak_cases(load_operators(self.catalog.operators))
        wanted = [case for case in cases if case.precision in types]
        preparer = self._artefact_store(self._made_by)
        prepared = preparer.prepare_operators(
            [case.case for case in wanted], self._make, ended=lambda _: None, cancel=self.stop.cancel
        )
        self.stop.check()
        folders = [one.folder for one in prepared.values() if isinstance(one, PreparedCase)]
        with self.observer.still():
            found = machine_peaks(
                {environment: built for environment, built in usable.items() if built is not None},
                counts,
                folders,
                catalog=self.catalog,
                store=self.store,
                run_task=self._run_task,
                cancel=self.stop.cancel,
            )
        self.stop.check()
        self.store.update_header(peaks={**known, **found})

    @property
    def _made_by(self) -> str:
        """The content key of the environment that makes artefacts; "" where there is none."""
        return "" if self._maker is None or isinstance(self._maker, BuildFailed) else self._maker.key


def _belong_to(cells: Iterable[Cell], config: SweepConfig, catalog: Catalog) -> None:
    """Raises StorageError for a plan that is not this sweep's: files of two runs, or damaged ones."""
    models = {model.name for model in config.models}
    cases = {case.key for case in config.operators}
    for cell in cells:
        work = cell.workload
        if work.level == OPERATOR and (work.subject, work.precision) not in cases:
            raise StorageError(
                f"the plan has an operator case {work.subject} in {work.precision}, the catalog has none"
            )
        if work.level not in (CONTROL, OPERATOR) and work.subject not in models:
            raise StorageError(f"the plan has a model {cell.workload.subject!r}, its sweep has none")
        if cell.environment.framework not in catalog.frameworks:
            raise StorageError(f"there is no framework {cell.environment.framework!r} any more")
