"""From launches to records: exactly one state per planned cell, and numbers by the registry's rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix import catalog
from matrix.consolidate import flags as cell_flags
from matrix.consolidate import reduce
from matrix.consolidate.cells import consolidate
from matrix.consolidate.evidence import Evidence, slots
from matrix.records import (
    Cell,
    Environment,
    EnvironmentRecord,
    LaunchRecord,
    Parity,
    ReasonRecord,
    Record,
    Workload,
)
from matrix.store.formats import ArtefactAttempt, EnvironmentAttempt
from matrix.sweep.ledger import Ledger, is_final
from matrix.sweep.order import block_order
from matrix.sweep.outcome import CellEnd, count_states, exit_code
from matrix.sweep.pace import Pace
from matrix_adapters.protocol import Reason, State

REGISTRY = catalog.load().metrics
STOPPED = ReasonRecord(code="stopped", text="the run was interrupted")
BLOCKS = 3


def cell(framework: str = "toy", subject: str = "a", batch: int = 2, **fields: Any) -> Cell:
    return Cell(
        environment=Environment(framework=framework, version="1.0", hardware="cpu", build="cpu"),
        workload=Workload(
            level="inference",
            subject=subject,
            batch=batch,
            sequence=None,
            precision="fp32",
            threads=1,
            variant="",
        ),
        **fields,
    )


def launch(of: Cell, purpose: Any = "measure", block: int = 0, **fields: Any) -> LaunchRecord:
    return LaunchRecord(cell=of.id, purpose=purpose, block=block, **{"state": State.OK, **fields})


def full(of: Cell, latencies: Sequence[float] = (10.0, 11.0, 12.0), **fields: Any) -> list[LaunchRecord]:
    """A memory launch and one timed launch per latency."""
    phases = {"import_s": 1.0, "load_s": 0.5, "compile_s": 0.25, "first_call_s": 0.25}
    timed = [
        launch(of, block=block, phases=phases, metrics={"latency_ms": value, "import_s": 1.0}, **fields)
        for block, value in enumerate(latencies)
    ]
    return [launch(of, "memory", metrics={"peak_memory_bytes": 5e8, "import_s": 99.0}), *timed]


def evidence(
    launches: Sequence[LaunchRecord],
    *,
    environments: Mapping[str, EnvironmentAttempt] | None = None,
    artefacts: Sequence[ArtefactAttempt] | None = None,
    samples: Mapping[int, Sequence[float]] | None = None,
    calls: int = 1,
) -> Evidence:
    """`samples`: milliseconds by block, the same for every cell."""

    def read(of: LaunchRecord) -> dict[str, Any]:
        values = (samples or {}).get(of.block)
        if values is None or of.purpose != "measure":
            return {}
        wall = np.asarray(values) * 1e6 * calls
        return {"wall_ns": wall.astype(np.int64), "calls": np.full(len(wall), calls, dtype=np.int64)}

    def built(framework: str) -> EnvironmentAttempt:
        record = EnvironmentRecord(
            name=f"{framework}-1.0-cpu", framework=framework, version="1.0", hardware="cpu", size_bytes=77
        )
        return EnvironmentAttempt(environment=record, consumes="checkpoint", state=State.OK)

    made = [
        ArtefactAttempt(subject=s, batch=2, consumes="checkpoint", state=State.OK, hashes={"weights": "w"})
        for s in "ab"
    ]
    return Evidence(
        environments={f"{f}-1.0-cpu": built(f) for f in ("toy", "other")} | dict(environments or {}),
        artefacts={a.key: a for a in (made if artefacts is None else artefacts)},
        launches=lambda identity: [found for found in launches if found.cell == identity],
        samples=read,
        blocks=BLOCKS,
        stopped=STOPPED,
        measure={"launches": BLOCKS, "warmup_calls": 3},
    )


def one(of: Cell, launches: Sequence[LaunchRecord], **options: Any) -> Record:
    (record,) = consolidate([of], evidence(launches, **options), REGISTRY)
    return record


def test_launches_reduce_to_their_mean_with_the_range_beside_it() -> None:
    record = one(cell(), full(cell()))
    assert record.state is State.OK
    latency = record.metrics["latency_ms"]
    assert (latency.value, latency.low, latency.high, latency.n) == (11.0, 10.0, 12.0, 3)
    throughput = record.metrics["throughput_items_s"]
    assert throughput.value == pytest.approx(2 / 11e-3)
    assert throughput.low == pytest.approx(2 / 12e-3)
    assert throughput.derived
    first = record.metrics["time_to_first_output_s"]
    assert (first.value, first.derived) == (2.0, True)
    assert record.metrics["peak_memory_bytes"].value == 5e8
    assert record.metrics["import_s"].value == 1.0, "start-up is not taken from a memory launch"
    assert record.metrics["image_bytes"].value == 77


@pytest.mark.parametrize(
    ("count", "calls", "p90", "p99"),
    [
        (21, 1, False, False),
        (22, 1, True, False),
        (221, 1, True, True),
        (220, 1, True, False),
        (221, 4, False, False),
    ],
)
def test_tails_are_given_only_where_the_pooled_samples_support_them(
    count: int, calls: int, p90: bool, p99: bool
) -> None:
    samples = {block: list(np.linspace(1, 2, count)) for block in range(BLOCKS)}
    record = one(cell(), full(cell()), samples=samples, calls=calls)
    assert ("latency_ms_p90" in record.metrics, "latency_ms_p99" in record.metrics) == (p90, p99)
    if p90:
        assert record.metrics["latency_ms_p90"].n == 3 * count
        pooled = [value for values in samples.values() for value in values]
        assert record.metrics["latency_ms_p90"].value == pytest.approx(np.quantile(pooled, 0.9), rel=1e-6)
    else:
        assert record.absent["latency_ms_p90"]


def test_every_metric_of_the_registry_has_a_value_or_a_reason() -> None:
    record = one(cell(), full(cell(), absent={"energy_j_per_item": "no RAPL here"}))
    here = {name for name, metric in REGISTRY.items() if metric.exists_at("inference")}
    assert set(record.metrics) | set(record.absent) == here, "what another level has is not even missing"
    assert "ttft_ms" in set(REGISTRY) - here
    assert not set(record.metrics) & set(record.absent)
    assert record.absent["energy_j_per_item"] == "no RAPL here"


def test_energy_of_the_steady_phase_is_shared_among_the_items_computed_in_it() -> None:
    record = one(cell(batch=2), full(cell(batch=2), sampling={"energy_j": 30.0, "calls": 5}))
    energy = record.metrics["energy_j_per_item"]
    assert (energy.value, energy.unit, energy.derived) == (3.0, "J", True)


def test_a_metric_that_the_registry_does_not_know_fails_the_cell() -> None:
    launches = full(cell())
    launches[1] = launches[1].model_copy(update={"metrics": {"latency_ms": 1.0, "speediness": 3.0}})
    record = one(cell(), launches)
    assert record.state is State.FAILED
    assert record.reason is not None
    assert "speediness" in record.reason.text
    assert not record.metrics


@pytest.mark.parametrize(
    "state", [State.FAILED, State.OOM, State.TIMEOUT, State.UNAVAILABLE, State.UNSUPPORTED]
)
@pytest.mark.parametrize("slot", range(4))
def test_one_launch_that_failed_fails_the_cell_and_leaves_it_without_numbers(state: State, slot: int) -> None:
    launches = full(cell())
    reason = ReasonRecord(code="why", text="it broke")
    launches[slot] = launches[slot].model_copy(update={"state": state, "reason": reason})
    record = one(cell(), launches)
    assert record.state is state
    assert record.reason is not None
    assert record.reason.text.endswith("it broke")
    assert not record.metrics
    assert record.attempts == 4


def test_one_launch_with_wrong_numerics_makes_the_cell_incorrect_and_keeps_its_speed() -> None:
    launches = full(cell())
    bad = Parity(reference="r", passed=False, rule="r", max_scaled_error=0.5, failure="off by 0.5")
    good = Parity(reference="r", passed=True, rule="r", max_scaled_error=1e-7)
    reason = ReasonRecord(code="tolerance", text="off by 0.5")
    launches[1] = launches[1].model_copy(update={"parity": good})
    launches[2] = launches[2].model_copy(update={"parity": bad, "state": State.INCORRECT, "reason": reason})
    record = one(cell(), launches)
    assert record.state is State.INCORRECT
    assert record.reason == reason
    assert record.parity == bad
    assert record.metrics["max_scaled_error"].value == 0.5
    assert record.metrics["latency_ms"].value == 11.0


def test_a_retry_that_succeeded_counts_and_both_attempts_are_kept() -> None:
    killed = launch(
        cell(), block=1, state=State.FAILED, reason=ReasonRecord(code="killed", text="killed by SIGKILL")
    )
    launches = full(cell())
    record = one(cell(), [killed, *launches])
    assert record.state is State.OK
    assert record.attempts == 5


def test_missing_launches_are_not_run_with_the_reason_and_how_far_it_came() -> None:
    record = one(cell(), full(cell())[:2])
    assert record.state is State.NOT_RUN
    assert record.reason is not None
    assert "1 of 3 timed launches" in record.reason.text
    assert not record.metrics
    assert one(cell(), []).state is State.NOT_RUN


def test_a_build_that_failed_is_the_state_of_its_cells_unless_they_are_done() -> None:
    reason = ReasonRecord(code="no_wheel", text="no wheel")
    broken = EnvironmentAttempt(
        environment=EnvironmentRecord(name="toy-1.0-cpu", framework="toy", version="1.0", hardware="cpu"),
        state=State.BUILD_FAILED,
        reason=reason,
    )
    options = {"environments": {"toy-1.0-cpu": broken}}
    assert one(cell(), [], **options).state is State.BUILD_FAILED
    assert one(cell(), full(cell())[:2], **options).state is State.BUILD_FAILED
    assert one(cell(), full(cell()), **options).state is State.OK


def test_an_artefact_that_failed_is_the_state_of_its_consumers_only() -> None:
    reason = ReasonRecord(code="export", text="the exporter gave up")
    failed = ArtefactAttempt(subject="a", batch=2, consumes="checkpoint", state=State.FAILED, reason=reason)
    other = ArtefactAttempt(subject="a", batch=2, consumes="onnx", state=State.FAILED, reason=reason)
    record = one(cell(), [], artefacts=[failed])
    assert (record.state, record.reason) == (State.FAILED, reason)
    assert one(cell(), full(cell()), artefacts=[other]).state is State.OK


def test_what_planning_decided_stands() -> None:
    planned = cell(state=State.UNSUPPORTED, reason=Reason(code="hardware", text="not on a CPU"))
    record = one(planned, [])
    assert record.state is State.UNSUPPORTED
    assert record.reason == ReasonRecord(code="hardware", text="not on a CPU")


def test_cells_of_a_row_that_were_given_different_weights_or_inputs_are_flagged() -> None:
    cells = [cell("toy"), cell("other"), cell("toy", "b")]
    launches: list[LaunchRecord] = []
    for number, of in enumerate(cells):
        launches += full(of, artefacts={"inputs": {"x": {"sha256": str(number)}}})
    flags = [{f.code for f in record.flags} for record in consolidate(cells, evidence(launches), REGISTRY)]
    assert ["inputs_differ" in found for found in flags] == [True, True, False]
    other = evidence(launches).environments["other-1.0-cpu"].model_copy(update={"consumes": "onnx"})
    made = [
        ArtefactAttempt(subject="a", batch=2, consumes=consumes, state=State.OK, hashes={"weights": consumes})
        for consumes in ("checkpoint", "onnx")
    ]
    options: dict[str, Any] = {"environments": {"other-1.0-cpu": other}, "artefacts": made}
    records = list(consolidate(cells[:2], evidence(launches, **options), REGISTRY))
    assert all("weights_differ" in {f.code for f in record.flags} for record in records)


def test_launches_that_disagree_are_noisy_and_two_steady_groups_are_bimodal() -> None:
    def flags(latencies: Sequence[float], spread: float) -> list[str]:
        samples = [
            reduce.Timed(per_call_ms=np.linspace(v * (1 - spread), v * (1 + spread), 22), calls=1)
            for v in latencies
        ]
        return [flag.code for flag in cell_flags.spread_flags(latencies, samples)]

    assert flags([70.4, 70.5, 14.1, 14.2], 0.01) == ["bimodal"]
    assert flags([2.1, 3.2, 2.1], 0.02) == ["bimodal"]
    assert flags([10, 11, 12.5], 0.01) == ["noisy"]
    assert flags([2.1, 3.2, 2.1], 0.5) == ["noisy"], "launches that vary as much within are not two modes"
    assert flags([10, 20], 0.01) == ["noisy"]
    assert flags([10, 10.2, 10.5], 0.01) == []
    assert flags([10], 0.01) == []


def test_flags_of_launches_are_merged_and_say_how_many_carry_them() -> None:
    launches = full(cell())
    some, every = (
        ReasonRecord(code="outlier", text="an outlier"),
        ReasonRecord(code="preload", text="preloaded"),
    )
    launches[1:] = [found.model_copy(update={"flags": (every,)}) for found in launches[1:]]
    launches[2] = launches[2].model_copy(update={"flags": (every, some)})
    texts = {flag.code: flag.text for flag in one(cell(), launches).flags}
    assert texts["outlier"] == "an outlier (in 1 of 3 launches)"
    assert texts["preload"] == "preloaded"


def test_a_framework_that_changed_its_mind_between_launches_is_flagged() -> None:
    launches = full(cell(), effective={"threads": 1})
    launches[3] = launches[3].model_copy(update={"effective": {"threads": 2}})
    assert "threads_changed" in {flag.code for flag in one(cell(), launches).flags}


def test_the_contract_hash_depends_on_what_was_asked_and_used_not_on_what_came_out() -> None:
    base = one(cell(), full(cell(), effective={"math_mode": "fp32"}))
    slower = one(cell(), full(cell(), (20, 21, 22), effective={"math_mode": "fp32"}, sampling={"calls": 9}))
    other = one(cell(), full(cell(), effective={"math_mode": "tf32"}))
    assert base.contract_hash == slower.contract_hash != other.contract_hash
    assert base.contract["math_mode"] == "fp32"
    assert base.contract["weights"] == "w"
    assert base.contract["warmup"] == {"warmup_calls": 3}


_launches = st.lists(
    st.tuples(
        st.integers(0, 3),  # cell
        st.sampled_from(slots(BLOCKS)),
        st.sampled_from([s for s in State if s not in (State.NOT_RUN, State.BUILD_FAILED)]),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(launched=_launches, planned=st.sampled_from([None, State.UNAVAILABLE]))
def test_planned_cells_are_reported_cells_whatever_was_launched(
    launched: list[tuple[int, tuple[str, int], State]], planned: State | None
) -> None:
    cells = [cell(f, s) for f in ("toy", "other") for s in "ab"]
    cells[3] = dataclasses.replace(cells[3], state=planned)
    launches = [
        launch(cells[number], purpose, block, state=state, reason=ReasonRecord(code="c", text="t"))
        for number, (purpose, block, _), state in launched
    ]
    records = list(consolidate(cells, evidence(launches), REGISTRY))
    assert [record.id for record in records] == [of.id for of in cells]
    assert sum(count_states(_ends(records)).values()) == len(cells)
    for record, of in zip(records, cells, strict=True):
        last = {(found.purpose, found.block): found.state for found in launches if found.cell == of.id}
        complete = set(last) == set(slots(BLOCKS)) and set(last.values()) == {State.OK}
        assert (record.state is State.OK) == (complete and of.state is None)


def test_a_cell_that_is_planned_twice_is_a_defect() -> None:
    with pytest.raises(AssertionError, match="same id"):
        list(consolidate([cell(), cell()], evidence([]), REGISTRY))


def _ends(records: Sequence[Record]) -> list[CellEnd]:
    return [CellEnd(id=r.id, state=r.state, required=r.required, xfail=r.xfail) for r in records]


@pytest.mark.parametrize(
    ("state", "code", "required"),
    [
        (State.OK, 0, 0),
        (State.INCORRECT, 1, 1),
        (State.UNSUPPORTED, 0, 1),
        (State.UNAVAILABLE, 0, 1),
        (State.BUILD_FAILED, 1, 1),
        (State.FAILED, 1, 1),
        (State.OOM, 1, 1),
        (State.TIMEOUT, 1, 1),
        (State.INTERRUPTED, 0, 1),
        (State.NOT_RUN, 0, 1),
    ],
)
def test_the_exit_code_of_each_state(state: State, code: int, required: int) -> None:
    ok = CellEnd(id="0", state=State.OK)
    assert exit_code("complete", [ok, CellEnd(id="1", state=state)]) == code
    assert exit_code("complete", [ok, CellEnd(id="1", state=state, required=True)]) == required
    assert exit_code("complete", [ok, CellEnd(id="1", state=state, required=True, xfail="known")]) == 0
    assert exit_code("interrupted", [ok, CellEnd(id="1", state=state)]) == 130
    assert exit_code("broken_off", [ok, CellEnd(id="1", state=state)]) == 3


def test_the_order_comes_from_the_seed_keeps_rows_together_and_differs_between_blocks() -> None:
    cells = [cell(f, s) for s in "abcdefgh" for f in ("toy", "other", "third")]
    first = block_order(cells, 7, 0)
    assert first == block_order(cells, 7, 0)
    assert sorted(c.id for c in first) == sorted(c.id for c in cells)
    assert first != block_order(cells, 7, 1)
    assert first != block_order(cells, 8, 0)
    rows = [first[i].workload.subject for i in range(0, len(first), 3)]
    assert [c.workload.subject for c in first] == [row for row in rows for _ in range(3)]
    assert len({tuple(c.environment.framework for c in first[i : i + 3]) for i in range(0, 24, 3)}) > 1


def test_what_came_from_outside_is_tried_again_by_resume_and_nothing_else_is() -> None:
    def ended(state: State, code: str = "x") -> LaunchRecord:
        return launch(cell(), state=state, reason=ReasonRecord(code=code, text="t"))

    assert not is_final(ended(State.INTERRUPTED))
    assert not is_final(ended(State.FAILED, "killed"))
    assert not is_final(ended(State.FAILED, "disk_full"))
    for state in (State.OK, State.INCORRECT, State.OOM, State.TIMEOUT, State.UNAVAILABLE, State.FAILED):
        assert is_final(ended(state))
    known = [*full(cell())[:2], launch(cell(), block=1, state=State.INTERRUPTED)]
    ledger = Ledger([cell()], lambda _: known, BLOCKS)
    assert [s for s in slots(BLOCKS) if ledger.needs(cell(), s)] == [("measure", 1, ""), ("measure", 2, "")]
    assert ledger.next_attempt(cell(), ("measure", 1, "")) == 2
    ledger.note(launch(cell(), block=1, state=State.OOM))
    assert not ledger.is_open(cell()), "a cell that failed is not launched again"


def test_the_rest_is_estimated_from_what_was_seen() -> None:
    pace = Pace()
    assert pace.left(["a"]) is None
    pace.note("a", 1.0)
    pace.note("a", 3.0)
    assert pace.left(["a", "a", "unseen"]) == 6.0
    assert pace.left([]) == 0
