"""One launch of one cell: from cell to task, from result to the record that is kept.

`run` may be called from any thread and touches only its own scratch folder; `settle`
judges, keeps what is worth keeping and is called from one thread.
"""

from __future__ import annotations

import dataclasses
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from matrix.artefacts.operator_store import INPUTS_FILE, PreparedCase
from matrix.catalog.types import Catalog, ModelEntry
from matrix.config.sweep import SweepConfig
from matrix.consolidate.evidence import Slot
from matrix.errors import StorageError
from matrix.execution.cancel import Cancel
from matrix.execution.local import Startable
from matrix.judge import clocks, parity
from matrix.operators.expand import CatalogCase
from matrix.records import (
    CANDIDATE,
    CONTROL,
    OPERATOR,
    Cell,
    Environment,
    LaunchRecord,
    Parity,
    ReasonRecord,
    Workload,
)
from matrix.store.formats import utc_now
from matrix.store.runs import RunStore
from matrix.sweep.checked import Answer, judged
from matrix_adapters.protocol import (
    OUTPUTS_FILE,
    SAMPLES_FILE,
    Flag,
    ModelSpec,
    Reason,
    Result,
    State,
    Task,
    TaskKind,
    plain,
)

#: a worker that neither beats nor computes for this long hangs
STALL_S = 120.0
#: tasks whose last axis holds class scores: their top-1 must agree
_TOP1_TASKS = frozenset({"image-classification", "causal-lm"})

Purpose = Literal["measure", "memory", "pilot"]
ArtefactKey = tuple[str, int, int | None, str]  # subject, batch, sequence, "checkpoint" or "onnx"


class Artefacts(Protocol):
    """What a row of cells shares, as it lies in the cache."""

    @property
    def paths(self) -> Mapping[str, Path]: ...  # checkpoint or onnx, inputs, reference
    @property
    def hashes(self) -> Mapping[str, str]: ...
    @property
    def spec(self) -> ModelSpec: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...


class RunTask(Protocol):
    """`matrix.execution.local.run_worker`, or what stands for it in a test."""

    def __call__(
        self,
        built: Startable,
        task: Task,
        folder: Path,
        *,
        timeout_s: float,
        stall_s: float,
        cancel: Cancel | None = None,
    ) -> Result: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One launch to be made."""

    cell: Cell
    purpose: Purpose
    block: int
    attempt: int
    position: int = 0  # in the random order of its block
    pair: str = ""  # of half of a live pair: the candidate's side
    stage: str = ""

    @property
    def slot(self) -> Slot:
        """Which of the cell's launches this is an attempt at."""
        return (self.purpose, self.block, self.pair)

    @property
    def name(self) -> str:
        """Unique within the cell and readable: `memory`, `0`, `2-attempt2`, `0-onnxruntime-1.32.0-cpu`."""
        base = str(self.block) if self.purpose == "measure" else self.purpose
        if self.pair:
            base += f"-{re.sub(r'[^A-Za-z0-9._@-]', '_', self.pair)}"
        return base if self.attempt == 1 else f"{base}-attempt{self.attempt}"


class Launcher:
    """Makes launches for one run."""

    def __init__(
        self,
        *,
        store: RunStore,
        catalog: Catalog,
        config: SweepConfig,
        models: Mapping[str, ModelEntry],
        run_task: RunTask,
        cancel: Cancel,
    ) -> None:
        self._store, self.catalog, self._config = store, catalog, config
        self._cases = {case.key: case for case in config.operators}
        self._candidates = {one.variant: one.told() for one in config.candidates}
        self._models, self._run_task, self._cancel = models, run_task, cancel
        self.environments: dict[Environment, Startable] = {}
        self.artefacts: dict[ArtefactKey, Artefacts] = {}
        self.operators: dict[tuple[str, str], PreparedCase] = {}  # by subject and precision
        self._reference: tuple[Path, parity.Reference] | None = None  # the last one read

    @property
    def timeout_s(self) -> float:
        """How long one launch may take."""
        return self._config.timeout_s

    def key(self, cell: Cell) -> ArtefactKey:
        """What the cell shares with its row, by the kind of artefact its framework loads."""
        work = cell.workload
        framework = self.catalog.frameworks[cell.environment.framework]
        return (work.subject, work.batch, work.sequence, framework.consumes)

    def task(self, job: Job) -> Task:
        """The worker's task for a launch."""
        work, environment = job.cell.workload, job.cell.environment
        kind = (
            TaskKind.MEMORY if job.purpose == "memory" else TaskKind.SLICES if job.pair else TaskKind.MEASURE
        )
        if work.level == CONTROL:
            return Task(
                kind=kind,
                framework=CONTROL,
                adapter="matrix_adapters.control",
                threads=work.threads,
                measure=self._config.measure.worker(),
                keep_outputs=False,
            )
        framework = self.catalog.frameworks[environment.framework]
        spec, artefacts, inputs = self._given(job.cell)
        return Task(
            kind=kind,
            framework=framework.name,
            adapter=framework.adapter,
            device=framework.hardware[environment.hardware].device,
            threads=work.threads,
            precision=work.precision,
            variant=self._variant(work),
            model=spec,
            artefacts=artefacts,
            inputs=str(inputs),
            measure=self._config.measure.worker(),
            options=self._candidate(work),
        )

    def _variant(self, work: Workload) -> str:
        """The framework's own word; a candidate stands where its default variant would."""
        return "" if work.variant.startswith(CANDIDATE) else work.variant

    def _candidate(self, work: Workload) -> dict[str, Any]:
        """The user's own implementation that the cell is about, as a worker is told of it."""
        found = self._candidates.get(work.variant)
        if work.variant.startswith(CANDIDATE) and found is None:
            raise StorageError(f"the plan has {work.variant}, its sweep has no such candidate")
        return {"candidate": found} if found else {}

    def _given(self, cell: Cell) -> tuple[ModelSpec, dict[str, str], Path]:
        """What a launch is to load and to be fed with."""
        if cell.workload.level == OPERATOR:
            case, folder = self.case(cell).case, self.prepared(cell).folder
            spec = ModelSpec(
                name=case.name,
                format=OPERATOR,
                task=OPERATOR,
                inputs=tuple(tensor.name for tensor in case.inputs if not tensor.constant),
                outputs=case.outputs,
            )
            return spec, {OPERATOR: str(folder)}, folder / INPUTS_FILE
        consumes = self.catalog.frameworks[cell.environment.framework].consumes
        artefacts = self.artefacts[self.key(cell)]
        return artefacts.spec, {consumes: str(artefacts.paths[consumes])}, artefacts.paths["inputs"]

    def has_artefacts(self, cell: Cell) -> bool:
        """Whether what the cell is run from is there."""
        if cell.workload.level == OPERATOR:
            return (cell.workload.subject, cell.workload.precision) in self.operators
        return cell.workload.level == CONTROL or self.key(cell) in self.artefacts

    def case(self, cell: Cell) -> CatalogCase:
        """The operator case that a cell checks."""
        return self._cases[cell.workload.subject, cell.workload.precision]

    def prepared(self, cell: Cell) -> PreparedCase:
        """The files of an operator cell."""
        return self.operators[cell.workload.subject, cell.workload.precision]

    def run_checks(self, cells: Sequence[Cell], folder: Path, *, timeout_s: float, cancel: Cancel) -> Result:
        """Run one correctness batch over cells of one environment, variant and number of threads."""
        environment, work = cells[0].environment, cells[0].workload
        framework = self.catalog.frameworks[environment.framework]
        folders = [str(self.prepared(cell).folder) for cell in cells]
        task = Task(
            kind=TaskKind.OPERATORS,
            framework=framework.name,
            adapter=framework.adapter,
            device=framework.hardware[environment.hardware].device,
            threads=work.threads,
            variant=self._variant(work),
            options={"cases": folders, "first": 0, **self._candidate(work)},
        )
        return self._run_task(
            self.environments[environment],
            task,
            folder,
            timeout_s=timeout_s,
            stall_s=STALL_S,
            cancel=cancel,
        )

    def run(self, job: Job) -> tuple[Result, Path]:
        """Run the worker; its result and the scratch folder that it left."""
        folder = self._store.scratch()
        result = self._run_task(
            self.environments[job.cell.environment],
            self.task(job),
            folder,
            timeout_s=self.timeout_s,
            stall_s=STALL_S,
            cancel=self._cancel,
        )
        return result, folder

    def settle(self, job: Job, result: Result, folder: Path) -> LaunchRecord:
        """Judge the outputs, move samples and log into the run, remove the rest."""
        out = folder / "out"
        verdict = None
        if result.state is State.OK:
            verdict, result = self._judge(job, result, out)
        record = LaunchRecord(
            cell=job.cell.id,
            purpose=job.purpose,
            block=job.block,
            attempt=job.attempt,
            position=job.position,
            pair=job.pair,
            stage=job.stage,
            state=result.state,
            reason=_reason(result.reason),
            phases=result.phases,
            metrics=result.metrics,
            absent=result.absent,
            effective=result.effective,
            probes=result.probes,
            versions=result.versions,
            flags=tuple(ReasonRecord(code=f.code, text=f.text) for f in result.flags),
            sampling=_with_clocks(result, out) if job.pair else result.sampling,
            outputs=plain(result.outputs),
            artefacts=plain(result.artefacts),
            parity=verdict,
            samples=self._store.keep_samples(out, job.cell.id, job.name),
            log=self._store.keep_log(out, job.cell.id, job.name),
            started=result.started or utc_now(),
            ended=result.ended or utc_now(),
        )
        if result.state is State.INCORRECT:  # the evidence; right outputs are known by their hashes
            self._store.keep_file(out / OUTPUTS_FILE, job.cell.id, f"{job.name}-outputs.npz")
        self._store.drop_scratch(folder)
        return record

    def _judge(self, job: Job, result: Result, out: Path) -> tuple[Parity | None, Result]:
        """The verdict on the outputs, and the result with the state that follows from it."""
        path = out / OUTPUTS_FILE
        if not path.exists():
            if job.purpose == "memory" or job.cell.workload.level == CONTROL:
                return None, result
            text = "the worker left no outputs: what was timed cannot be checked"
            return None, _failed(result, "no_outputs", text)
        if job.cell.workload.level == OPERATOR:
            return self._judge_operator(job.cell, result, path)
        artefacts = self.artefacts[self.key(job.cell)]
        if "reference" not in artefacts.paths:
            return None, _flagged(result, "no_reference", artefacts.facts["reference"]["missing"])
        model = self._models[job.cell.workload.subject]
        rule = self.catalog.tolerances.inference.get(job.cell.workload.precision)
        if rule is None:
            text = f"the tolerance table has no rule for {job.cell.workload.precision}"
            return None, _failed(result, "no_tolerance", text)
        limit = model.tolerance
        override = parity.Override(limit=limit.limit, reason=limit.reason) if limit else None
        top1 = model.task in _TOP1_TASKS
        try:
            reference = self._load_reference(artefacts.paths["reference"])
            outputs = parity.load_arrays(path)
            verdict = parity.judge(outputs, reference, rule, top1=top1, override=override)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            return None, _failed(result, "not_judged", f"outputs or reference cannot be read: {error}")
        if not verdict.passed:
            reason = Reason(code=verdict.failure_code, text=verdict.failure)
            return verdict, dataclasses.replace(result, state=State.INCORRECT, reason=reason)
        for code, text in reference.notes:
            result = _flagged(result, code, text)
        most = self.catalog.tolerances.ill_conditioned_floor
        if verdict.floor is not None and verdict.floor > most:
            text = f"ill-conditioned: plain float32 arithmetic is off by {verdict.floor:.2g} already"
            result = _flagged(result, "ill_conditioned", text)
        return verdict, result

    def _judge_operator(self, cell: Cell, result: Result, path: Path) -> tuple[Parity | None, Result]:
        """The tensors that were timed, by the rule of the check."""
        dtypes = result.effective.get("output_dtypes", {})
        answer = Answer(
            state=State.OK,
            outputs={
                name: {"dtype": dtypes.get(name, facts.dtype)} for name, facts in result.outputs.items()
            },
        )
        found = judged(answer, path, self.case(cell), self.prepared(cell), self.catalog)
        for flag in found.flags:
            result = _flagged(result, flag.code, flag.text)
        return found.parity, dataclasses.replace(result, state=found.state, reason=found.reason)

    def _load_reference(self, folder: Path) -> parity.Reference:
        """One reference is kept: the cells of a row follow each other."""
        if self._reference is None or self._reference[0] != folder:
            self._reference = (folder, parity.load_reference(folder))
        return self._reference[1]


def _with_clocks(result: Result, out: Path) -> Mapping[str, Any]:
    """The sampling facts of half a live pair, with its numbers by clock: what a verdict is made of."""
    path = out / SAMPLES_FILE
    if result.state is not State.OK or not path.exists():
        return result.sampling
    try:
        return {
            **result.sampling,
            "clocks": clocks.clocks(cast("dict[str, clocks.Integers]", parity.load_arrays(path))),
        }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return result.sampling


def _failed(result: Result, code: str, text: str) -> Result:
    return dataclasses.replace(result, state=State.FAILED, reason=Reason(code=code, text=text))


def _flagged(result: Result, code: str, text: str) -> Result:
    return dataclasses.replace(result, flags=(*result.flags, Flag(code=code, text=text)))


def _reason(reason: Reason | None) -> ReasonRecord | None:
    return None if reason is None else ReasonRecord(code=reason.code, text=reason.text)
