"""From the launches of a timed operator to its record: rates, share of the roof, and what is wrong with them.

Each fault that the share could hide is planted: a wrong number of operations, a peak of another number of
threads, inputs that were to rotate through more than a cache holds and did not.
"""

from __future__ import annotations

from typing import Any

import pytest

from matrix import catalog
from matrix.consolidate.cells import consolidate
from matrix.consolidate.evidence import Evidence, operator_artefact
from matrix.records import (
    Cell,
    Environment,
    EnvironmentRecord,
    LaunchRecord,
    ReasonRecord,
    Record,
    Workload,
)
from matrix.store.formats import ArtefactAttempt, EnvironmentAttempt
from matrix_adapters.protocol import State

REGISTRY = catalog.load().metrics
PLACE = Environment(framework="toy", version="1.0", hardware="cpu", build="cpu")
#: a product of two matrices of 512: 268 million operations, 3 MiB
WORK: dict[str, Any] = {
    "flops": 268_435_456,
    "bytes": 3_145_728,
    "why_no_flops": "",
    "why_no_bytes": "",
    "doubt": "",
}
PEAKS: dict[str, Any] = {
    "1": {
        "gemm": {"fp32": {"flops_s": 100e9, "case": "MatMul/gemm_512", "environment": "toy"}},
        "bandwidth": [
            {"bytes": 16e6, "bytes_s": 50e9, "kernel": "add", "where": "cache"},
            {"bytes": 400e6, "bytes_s": 10e9, "kernel": "add", "where": "memory"},
        ],
    }
}
#: 5 ms for 268 million operations: 53.7 GFLOP/s of 100
HALF = 0.537


def record(
    *,
    latency_ms: float = 5.0,
    work: dict[str, Any] | None = None,
    peaks: dict[str, Any] | None = None,
    asked: int = 1,
    used: int | None = 1,
    sampling: dict[str, Any] | None = None,
) -> Record:
    """One cell that was checked and timed once."""
    load = Workload(
        level="operator",
        subject="MatMul/gemm_512",
        batch=1,
        sequence=None,
        precision="fp32",
        threads=asked,
        variant="",
    )
    cell = Cell(environment=PLACE, workload=load)
    effective = {} if used is None else {"threads": used}
    launches = [
        LaunchRecord(cell=cell.id, purpose="check", block=0, state=State.OK),
        LaunchRecord(cell=cell.id, purpose="memory", block=0, state=State.OK),
        LaunchRecord(
            cell=cell.id,
            purpose="measure",
            block=0,
            state=State.OK,
            metrics={"latency_ms": latency_ms},
            effective=effective,
            sampling=sampling or {},
        ),
    ]
    subject, batch, sequence, consumes = operator_artefact("MatMul/gemm_512", "fp32")
    made = ArtefactAttempt(
        subject=subject,
        batch=batch,
        sequence=sequence,
        consumes=consumes,
        state=State.OK,
        facts={"work": WORK if work is None else work},
    )
    named = EnvironmentRecord(name=PLACE.name, framework="toy", version="1.0", hardware="cpu")
    evidence = Evidence(
        environments={PLACE.name: EnvironmentAttempt(environment=named, consumes="onnx", state=State.OK)},
        artefacts={made.key: made},
        launches=lambda _: launches,
        samples=lambda _: {},
        blocks=1,
        stopped=ReasonRecord(code="stopped", text="it was stopped"),
        peaks=PEAKS if peaks is None else peaks,
    )
    (found,) = consolidate([cell], evidence, REGISTRY)
    assert found.state is State.OK, found.reason
    return found


def codes(found: Record) -> list[str]:
    return [flag.code for flag in found.flags]


def test_what_was_reached_is_held_against_the_peaks_of_the_run() -> None:
    found = record()
    assert found.metrics["tflops"].value == pytest.approx(0.0537, rel=1e-3)
    assert found.metrics["memory_gb_s"].value == pytest.approx(0.629, rel=1e-3)
    assert found.metrics["roofline_share"].value == pytest.approx(HALF, rel=1e-3)
    assert found.metrics["roofline_share"].derived
    assert found.work["flops"] == WORK["flops"]
    assert codes(found) == []


def test_a_peak_of_another_number_of_threads_gives_no_share() -> None:
    found = record(asked=2, used=2)
    assert "tflops" in found.metrics
    assert "roofline_share" not in found.metrics
    assert found.absent["roofline_share"] == "the peaks of this machine with 2 threads were not measured"


def test_a_framework_that_took_other_threads_than_asked_is_not_held_against_the_peak_of_those_asked() -> None:
    found = record(asked=1, used=2)
    assert "roofline_share" not in found.metrics
    assert "2 threads" in found.absent["roofline_share"]


def test_a_framework_that_does_not_say_is_taken_at_its_word() -> None:
    assert record(used=None).metrics["roofline_share"].value == pytest.approx(HALF, rel=1e-3)


def test_operations_that_are_counted_too_high_end_above_the_roof_and_are_flagged() -> None:
    found = record(work={**WORK, "flops": 4 * WORK["flops"]})
    assert found.metrics["roofline_share"].value > 2
    assert codes(found) == ["above_roof"]
    assert "counted wrongly" in found.flags[0].text


def test_a_declared_number_that_the_shapes_contradict_is_flagged() -> None:
    found = record(work={**WORK, "doubt": "134,217,728 operations are declared, its shapes give 268,435,456"})
    assert codes(found) == ["work_differs"]
    assert "its shapes give 268,435,456" in found.flags[0].text


def test_inputs_that_rotate_come_from_memory_and_those_that_fit_a_cache_do_not() -> None:
    """A sum of two: 12 MB a call. Warm it lies in the cache; rotating, its inputs do not."""
    moving = {**WORK, "flops": 1_000_000, "bytes": 12_000_000}
    large = {"cache_copies": 8, "cache_working_set_bytes": 64_000_000, "cache_last_level_bytes": 32_000_000}
    small = {**large, "cache_working_set_bytes": 8_000_000}
    warm = record(work=moving, latency_ms=1.2)
    outside = record(work=moving, latency_ms=1.2, sampling=large)
    inside = record(work=moving, latency_ms=1.2, sampling=small)
    assert warm.metrics["roofline_share"].value == pytest.approx(12e6 / 50e9 / 1.2e-3)
    # 8 MB of the inputs at 10 GB/s, the other 4 MB at 50 GB/s
    assert outside.metrics["roofline_share"].value == pytest.approx((8e6 / 10e9 + 4e6 / 50e9) / 1.2e-3)
    # the planted fault: what was to rotate fits the cache, and memory's bandwidth would flatter nobody
    assert inside.metrics["roofline_share"].value == pytest.approx(12e6 / 50e9 / 1.2e-3)


def test_without_peaks_there_are_rates_and_a_reason() -> None:
    found = record(peaks={})
    assert {"tflops", "memory_gb_s"} <= set(found.metrics)
    assert "were not measured" in found.absent["roofline_share"]
