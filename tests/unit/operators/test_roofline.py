"""Rates and shares of the roof: exact where it is known, absent with a reason where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.consolidate.roofline import IMPOSSIBLE, METRICS, Roof, Traffic, flags, rates, roof, traffic
from matrix.records import MetricValue
from matrix.sweep.peaks import best_of
from matrix_adapters.protocol import Reason, Result, State

PEAKS: dict[str, Any] = {
    "1": {
        "gemm": {"fp32": {"flops_s": 100e9, "case": "MatMul/gemm_512", "environment": "a"}},
        "bandwidth": [
            {"bytes": 400e6, "bytes_s": 10e9, "kernel": "add", "where": "memory"},
            {"bytes": 1e6, "bytes_s": 50e9, "kernel": "triad", "where": "cache"},
        ],
    }
}


def found(**changes: Any) -> Roof:
    asked: dict[str, Any] = {
        "threads": 1,
        "precision": "fp32",
        "hardware": "cpu",
        "calls": Traffic(2_000_000),
    }
    return roof(PEAKS, **{**asked, **changes})


def ms(value: float, low: float | None = None, high: float | None = None) -> MetricValue:
    return MetricValue(value=value, unit="ms", low=low, high=high, n=3)


def test_a_compute_bound_call_is_held_against_the_peak_arithmetic() -> None:
    metrics, absent = rates(ms(10.0), {"flops": 500e6, "bytes": 1e6}, found(calls=Traffic(1_000_000)))
    assert metrics["tflops"].value == pytest.approx(0.05)
    assert metrics["memory_gb_s"].value == pytest.approx(0.1)
    assert metrics["roofline_share"].value == pytest.approx(0.5)
    assert absent == {}
    assert all(metric.derived for metric in metrics.values())


def test_a_memory_bound_call_is_held_against_the_bandwidth() -> None:
    metrics, _ = rates(ms(10.0), {"flops": 10e6, "bytes": 50e6}, found(calls=Traffic(50_000_000)))
    assert metrics["roofline_share"].value == pytest.approx(0.5)


def test_without_arithmetic_the_bytes_alone_bound_it() -> None:
    work = {"flops": None, "bytes": 50e6, "why_no_flops": "it does no arithmetic: it moves data"}
    metrics, absent = rates(ms(5.0), work, found(precision="int64", calls=Traffic(50_000_000)))
    assert metrics["roofline_share"].value == pytest.approx(1.0)
    assert absent == {"tflops": "it does no arithmetic: it moves data"}


def test_the_range_of_a_rate_is_that_of_the_time_turned_around() -> None:
    metrics, _ = rates(ms(10.0, 8.0, 20.0), {"flops": 1e9, "bytes": 1e6}, found())
    rate = metrics["tflops"]
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < rate.value < rate.high
    assert (rate.low, rate.high) == (pytest.approx(0.05), pytest.approx(0.125))


def test_what_a_cache_holds_is_held_against_the_cache_unless_inputs_rotate() -> None:
    assert found(calls=Traffic(500_000)).bytes_s == pytest.approx(50e9)
    assert found(calls=Traffic(2_000_000)).bytes_s == pytest.approx(10e9)
    assert found(calls=Traffic(500_000, 500_000, 64_000_000)).bytes_s == pytest.approx(10e9)
    assert found(calls=Traffic(10**12)).bytes_s == pytest.approx(10e9)


def test_a_bad_moment_of_one_working_set_is_no_roof_of_its_own() -> None:
    """Planted: the cache was measured while something else ran, and seems slower than memory."""
    slow = {"bytes": 1e6, "bytes_s": 2e9, "kernel": "add", "where": "cache"}
    disturbed = {"1": {**PEAKS["1"], "bandwidth": [PEAKS["1"]["bandwidth"][0], slow]}}
    asked: dict[str, Any] = {"threads": 1, "precision": "fp32", "hardware": "cpu"}
    assert roof(disturbed, calls=Traffic(500_000), **asked).bytes_s == pytest.approx(10e9)


def test_a_working_set_that_lacks_a_few_bytes_is_as_large() -> None:
    assert found(calls=Traffic(1_000_016)).bytes_s == pytest.approx(50e9)
    assert found(calls=Traffic(1_100_000)).bytes_s == pytest.approx(10e9)


def test_weights_stay_where_they_are_while_inputs_rotate() -> None:
    """A tenth comes from memory, the rest from the cache: the time is the sum of both."""
    mixed = found(calls=Traffic(500_000, 50_000, 64_000_000)).bytes_s
    assert mixed == pytest.approx(500_000 / (50_000 / 10e9 + 450_000 / 50e9))


def test_what_rotated_is_read_from_what_the_launch_says() -> None:
    told = {"cache_copies": 4, "cache_working_set_bytes": 4000, "cache_last_level_bytes": 2000}
    assert traffic(1500, told) == Traffic(1500, 1000, 4000)
    assert traffic(600, told) == Traffic(600, 600, 4000)  # a gather: it takes a part of what it is given
    assert traffic(1500, {}) == Traffic(1500)


def test_without_a_working_set_that_no_cache_holds_memory_has_no_bandwidth() -> None:
    only_cache = {"1": {**PEAKS["1"], "bandwidth": PEAKS["1"]["bandwidth"][1:]}}
    asked: dict[str, Any] = {"threads": 1, "precision": "fp32", "hardware": "cpu"}
    assert roof(only_cache, calls=Traffic(500_000), **asked).bytes_s == pytest.approx(50e9)
    large = roof(only_cache, calls=Traffic(2_000_000), **asked)
    assert large.bytes_s is None
    assert "memory bandwidth" in large.why


def share_of(value: float) -> dict[str, MetricValue]:
    return {"roofline_share": MetricValue(value=value, unit="1", n=1)}


def test_a_share_that_no_machine_reaches_is_flagged_and_one_a_little_above_is_not() -> None:
    assert [flag.code for flag in flags(share_of(1.01 * IMPOSSIBLE), {})] == ["above_roof"]
    assert flags(share_of(1.07), {}) == []
    assert flags({}, {}) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"threads": 2}, "with 2 threads were not measured"),
        ({"hardware": "nvidia"}, "on the CPU only"),
        ({"precision": "bf16"}, "no product of matrices ran in bf16"),
    ],
)
def test_a_roof_that_was_not_measured_leaves_rates_and_a_reason(changes: dict[str, Any], why: str) -> None:
    metrics, absent = rates(ms(10.0), {"flops": 1e9, "bytes": 1e6}, found(**changes))
    assert set(metrics) == {"tflops", "memory_gb_s"}
    assert why in absent["roofline_share"]


@given(
    flops=st.integers(1, 10**15),
    moved=st.integers(1, 10**12),
    call=st.floats(1e-4, 1e6),
)
def test_the_share_is_the_rate_over_the_lower_of_peak_and_intensity_times_bandwidth(
    flops: int, moved: int, call: float
) -> None:
    bound = Roof(100e9, 10e9)
    metrics, absent = rates(ms(call), {"flops": flops, "bytes": moved}, bound)
    rate = flops / (call / 1e3)
    assert absent == {}
    assert metrics["roofline_share"].value == pytest.approx(rate / min(100e9, flops / moved * 10e9))


def test_a_call_that_took_no_time_has_no_rate() -> None:
    assert rates(ms(0.0), {"flops": 1, "bytes": 1}, found()) == (
        {},
        dict.fromkeys(METRICS, "the call took no time"),
    )


def _result(products: list[dict[str, Any]], **more: Any) -> Result:
    return Result(state=State.OK, artefacts={"products": products, **more})


def test_the_machines_peak_is_the_best_of_all_sizes_and_environments() -> None:
    slow = {"case": "MatMul/gemm_512", "dtype": "float32", "flops": 1e9, "best_s": 0.1, "threads": 1}
    fast = {"case": "MatMul/gemm_1024", "dtype": "float32", "flops": 8e9, "best_s": 0.1, "threads": 1}
    none = {"case": "MatMul/gemm_512", "dtype": "bfloat16", "flops": 1e9, "absent": "no such kernel"}
    levels = [{"bytes": 1.0, "bytes_s": 2.0, "kernel": "add", "where": "memory"}]
    peaks = best_of(
        [("a", _result([slow, none], bandwidth=levels)), ("b", _result([fast, slow], bandwidth=[]))], 1
    )
    assert peaks["gemm"] == {"fp32": {"flops_s": 80e9, "case": "MatMul/gemm_1024", "environment": "b"}}
    assert peaks["bandwidth"] == levels
    assert peaks["absent"] == {"a bf16": "no such kernel"}


def test_an_environment_that_could_not_measure_is_named_and_costs_no_other() -> None:
    broken = Result(state=State.FAILED, reason=Reason(code="planted", text="it broke"))
    fine = _result([{"case": "c", "dtype": "float32", "flops": 1e9, "best_s": 1.0, "threads": 1}])
    peaks = best_of([("a", broken), ("b", fine)], 1)
    assert peaks["absent"] == {"a": "it broke"}
    assert peaks["gemm"]["fp32"]["environment"] == "b"


def test_a_product_made_with_another_number_of_threads_is_no_peak_of_these() -> None:
    told = {"case": "c", "dtype": "float32", "flops": 1e9, "best_s": 0.1}
    one, two = {**told, "threads": 1}, {**told, "threads": 2}
    peaks = best_of([("a", _result([two])), ("b", _result([told])), ("c", _result([one]))], 2)
    assert peaks["gemm"]["fp32"]["environment"] == "a"
    assert peaks["absent"] == {
        "b fp32": "2 threads asked, an unknown number used",
        "c fp32": "2 threads asked, 1 used",
    }
    assert best_of([("a", _result([two]))], 1)["gemm"] == {}
