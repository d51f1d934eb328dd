"""Attempts to records: one record, in exactly one state, for each planned cell.

Pure: the same plan and attempts always give the same records, so a run that was
killed can be reported from what it left. A cell is `ok` only if every launch planned
for it is: the last attempt at each counts. What was wrong in any one of them is the
state of the cell; numbers are given for cells that are `ok` or `incorrect`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matrix.catalog.types import Metric
from matrix.consolidate import contract, reduce, roofline
from matrix.consolidate import flags as cell_flags
from matrix.consolidate.evidence import Evidence, Slot, latest
from matrix.records import (
    OPERATOR,
    Cell,
    EnvironmentRecord,
    LaunchRecord,
    MetricValue,
    Parity,
    ReasonRecord,
    Record,
    Workload,
    WorkloadRecord,
    dataclasses_dict,
)
from matrix.store.formats import EnvironmentAttempt
from matrix_adapters.protocol import Reason, State, content_hash

#: what a framework may not change from launch to launch
_STEADY_FACTS = ("device", "threads", "precision", "math_mode", "layout")


def consolidate(
    cells: Sequence[Cell], evidence: Evidence, registry: Mapping[str, Metric]
) -> Iterator[Record]:
    """One record per cell, in plan order. Raises AssertionError if a cell is planned twice."""
    if len({cell.id for cell in cells}) != len(cells):
        raise AssertionError("two planned cells have the same id")
    rows = _Rows(cells, evidence)
    for cell in cells:
        yield _record(cell, evidence, registry, rows)


def _record(cell: Cell, evidence: Evidence, registry: Mapping[str, Metric], rows: _Rows) -> Record:
    launches = evidence.launches(cell.id)
    last = latest(launches)
    built = evidence.environments.get(cell.environment.name)
    needed = evidence.needed(cell, last)
    state, reason = _state(cell, evidence, last, needed)
    environment = _environment(cell, built)
    record = Record(
        id=cell.id,
        label=cell.label,
        arm=cell.arm,
        environment=environment,
        workload=WorkloadRecord(**dataclasses_dict(cell.workload)),
        required=cell.required,
        xfail=cell.xfail,
        state=state,
        reason=reason,
        launches=tuple(launches),
        attempts=len(launches),
        started=min((launch.started for launch in launches if launch.started), default=""),
        ended=max((launch.ended for launch in launches if launch.ended), default=""),
    )
    if not launches:
        return record
    done = [last[slot] for slot in needed if slot in last]
    artefact = evidence.artefact(cell)
    changes: dict[str, Any] = {
        "parity": _parity(done),
        "artefacts": dict(artefact.hashes) if artefact else {},
        "versions": {name: v for launch in done for name, v in launch.versions.items()},
        "effective": dict(_of_timed(done).effective),
        "flags": cell_flags.merge(
            [
                built.flags if built else (),
                cell_flags.launch_flags(done),
                cell_flags.differing(done, _STEADY_FACTS),
                rows.flags(cell),
            ]
        ),
    }
    if state in (State.OK, State.INCORRECT):
        changes |= _numbers(cell, evidence, registry, done, environment=environment, known=changes)
    return record.model_copy(update=changes)


def _state(
    cell: Cell, evidence: Evidence, last: Mapping[Slot, LaunchRecord], needed: Sequence[Slot]
) -> tuple[State, ReasonRecord | None]:
    if cell.state is not None:
        return cell.state, _reason(cell.reason)
    built = evidence.environments.get(cell.environment.name)
    artefact = evidence.artefact(cell)
    launched = _launched_state(evidence, last, needed)
    if launched is not None and launched[0] not in (State.NOT_RUN, State.INTERRUPTED):
        return launched
    if launched is not None:  # something is still to do: say what stood in the way
        for attempt in (built, artefact):
            if attempt is not None and attempt.state is not State.OK:
                return attempt.state, attempt.reason
    return launched or (State.OK, None)


def _launched_state(
    evidence: Evidence, last: Mapping[Slot, LaunchRecord], needed: Sequence[Slot]
) -> tuple[State, ReasonRecord | None] | None:
    """The state by the launches alone; None when all of them are ok.

    What failed first decides; a wrong result counts less than a failure, and a stop
    less than a wrong result that is already known.
    """
    bad = [(slot, last[slot]) for slot in needed if slot in last and last[slot].state is not State.OK]
    for group in (_is_failure, _is_incorrect):
        for slot, launch in bad:
            if group(launch.state) and (group is _is_failure or len(last) == len(needed)):
                return launch.state, _with_purpose(slot, launch.reason)
    for slot, launch in bad:
        if launch.state is State.INTERRUPTED:
            return launch.state, _with_purpose(slot, launch.reason)
    missing = [slot for slot in needed if slot not in last]
    if missing:
        done = sum(1 for purpose, _, _ in last if purpose == "measure")
        progress = (
            f" ({done} of {evidence.blocks} timed launches were)" if last and not evidence.pairs else ""
        )
        return State.NOT_RUN, evidence.stopped.model_copy(update={"text": evidence.stopped.text + progress})
    return None


def _is_failure(state: State) -> bool:
    return state not in (State.OK, State.INCORRECT, State.INTERRUPTED)


def _is_incorrect(state: State) -> bool:
    return state is State.INCORRECT


def _numbers(
    cell: Cell,
    evidence: Evidence,
    registry: Mapping[str, Metric],
    done: Sequence[LaunchRecord],
    *,
    environment: EnvironmentRecord,
    known: Mapping[str, Any],
) -> dict[str, Any]:
    """Metrics, contract and the flags that need samples; a metric that is not known fails the cell."""
    measured = [launch for launch in done if launch.purpose == "measure"]
    samples = [t for launch in measured if (t := reduce.timed(evidence.samples(launch))) is not None]
    try:
        metrics, absent = reduce.reduce(
            registry,
            done,
            samples=samples,
            batch=cell.workload.batch,
            environment=environment,
            parity=known["parity"],
            level=cell.workload.level,
            timed=cell.timed,
        )
    except reduce.UnknownMetric as error:
        reason = ReasonRecord(code="unknown_metric", text=str(error))
        return {"state": State.FAILED, "reason": reason}
    latencies = [launch.metrics["latency_ms"] for launch in measured if "latency_ms" in launch.metrics]
    artefact = evidence.artefact(cell)
    if cell.timed:
        terms = contract.contract_of(cell.workload, _of_timed(done), artefact, evidence.measure)
    else:
        terms = contract.of_check(cell.workload, _of_timed(done), artefact)
    work: Mapping[str, Any] = artefact.facts.get("work", {}) if artefact else {}
    doubts: list[ReasonRecord] = []
    if cell.timed and work and "latency_ms" in metrics:
        found, missing = _rates(cell, evidence, metrics["latency_ms"], work, _of_timed(done))
        metrics |= found
        absent = {name: why for name, why in absent.items() if name not in found} | missing
        doubts = roofline.flags(metrics, work)
    return {
        "metrics": metrics,
        "absent": absent,
        "work": work if cell.timed else {},
        "contract": terms,
        "contract_hash": content_hash(terms),
        "flags": cell_flags.merge([known["flags"], cell_flags.spread_flags(latencies, samples), doubts]),
    }


def _rates(
    cell: Cell, evidence: Evidence, latency: MetricValue, work: Mapping[str, Any], launch: LaunchRecord
) -> tuple[dict[str, MetricValue], dict[str, str]]:
    """What a timed operator reached, and its share of the roof of as many threads as `launch` really had."""
    threads = launch.effective.get("threads")
    bound = roofline.roof(
        evidence.peaks,
        threads=threads if isinstance(threads, int) else cell.workload.threads,
        precision=cell.workload.precision,
        hardware=cell.environment.hardware,
        calls=roofline.traffic(work.get("bytes"), launch.sampling),
    )
    return roofline.rates(latency, work, bound)


class _Rows:
    """Whether all cells of a row were given the same weights and the same inputs."""

    def __init__(self, cells: Sequence[Cell], evidence: Evidence) -> None:
        self._seen: dict[tuple[Any, ...], dict[str, set[str]]] = {}
        for cell in cells:
            if cell.state is None:
                row = self._seen.setdefault(self._key(cell.workload), {})
                for what, digest in self._digests(cell, evidence):
                    row.setdefault(what, set()).add(digest)

    def flags(self, cell: Cell) -> list[ReasonRecord]:
        return [
            ReasonRecord(
                code=f"{what}_differ",
                text=f"the cells of this row were given {len(digests)} different sets of {what}",
            )
            for what, digests in sorted(self._seen.get(self._key(cell.workload), {}).items())
            if len(digests) > 1
        ]

    @staticmethod
    def _key(work: Workload) -> tuple[Any, ...]:
        of_type = work.precision if work.level == OPERATOR else ""
        return (work.level, work.subject, work.batch, work.sequence, of_type)

    @staticmethod
    def _digests(cell: Cell, evidence: Evidence) -> Iterator[tuple[str, str]]:
        """What the host gave, and what the workers say they were given."""
        artefact = evidence.artefact(cell)
        launches = evidence.launches(cell.id)
        if artefact is None or not launches:
            return
        if "weights" in artefact.hashes:
            yield "weights", artefact.hashes["weights"]
        for launch in launches:
            if "inputs" in launch.artefacts:
                yield "inputs", content_hash(launch.artefacts["inputs"])


def _environment(cell: Cell, built: EnvironmentAttempt | None) -> EnvironmentRecord:
    if built is not None:
        return built.environment
    return EnvironmentRecord(name=cell.environment.name, **dataclasses_dict(cell.environment))


def _of_timed(done: Sequence[LaunchRecord]) -> LaunchRecord:
    """A timed launch where there is one: it is the one that the numbers come from."""
    return next((launch for launch in reversed(done) if launch.purpose == "measure"), done[-1])


def _parity(done: Sequence[LaunchRecord]) -> Parity | None:
    """The worst of all launches: one that failed, else the largest error."""
    judged = [launch.parity for launch in done if launch.parity is not None]
    return max(judged, key=lambda p: (not p.passed, p.max_scaled_error or 0.0), default=None)


def _with_purpose(slot: Slot, reason: ReasonRecord | None) -> ReasonRecord | None:
    if reason is None or slot[0] != "memory" or reason.code in ("unavailable", "unsupported"):
        return reason
    return reason.model_copy(update={"text": f"in the memory launch: {reason.text}"})


def _reason(reason: Reason | None) -> ReasonRecord | None:
    return None if reason is None else ReasonRecord(code=reason.code, text=reason.text)
