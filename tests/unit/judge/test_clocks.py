"""One process's samples become one number a clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.judge import clocks

MS = 1_000_000


def samples(
    wall_ms: list[float], cpu_ms: list[float] | None = None, **more: list[int]
) -> dict[str, np.ndarray]:
    wall = np.array(wall_ms) * MS
    cpu = wall if cpu_ms is None else np.array(cpu_ms) * MS
    arrays = {
        "wall_ns": wall.astype(np.int64),
        "process_ns": cpu.astype(np.int64),
        "nivcsw": np.zeros(len(wall), np.int64),
        "calls": np.ones(len(wall), np.int64),
    }
    return arrays | {name: np.array(values, np.int64) for name, values in more.items()}


def test_clocks_are_medians_in_milliseconds_a_call() -> None:
    found = clocks.clocks(samples([20, 40, 60], calls=[10, 10, 10]))
    assert found["wall"] == pytest.approx(4.0)
    assert found["cpu"] == pytest.approx(4.0)


def test_the_first_sample_of_a_slice_is_dropped_where_the_slice_has_another() -> None:
    found = clocks.clocks(samples([99, 2, 99, 4, 6], slice=[0, 0, 1, 1, 2]))
    assert found["wall"] == pytest.approx(4.0)  # of 2, 4 and the only sample of the last slice


def test_without_slices_nothing_is_dropped() -> None:
    assert clocks.clocks(samples([9, 2, 3]))["wall"] == pytest.approx(3.0)


def test_interrupted_samples_are_not_clean() -> None:
    waited = samples([10] * 6 + [30] * 8, [10] * 14)
    found = clocks.clocks(waited)
    assert found["wall-clean"] == pytest.approx(10.0)
    assert found["wall"] == pytest.approx(30.0)
    assert found["clean_share"] == pytest.approx(6 / 14)
    switched = samples([10] * 6 + [12] * 8, nivcsw=[0] * 6 + [1] * 8)
    assert clocks.clocks(switched)["wall-clean"] == pytest.approx(10.0)


def test_fewer_than_five_clean_samples_are_no_clock() -> None:
    found = clocks.clocks(samples([10] * 4 + [30] * 8, [10] * 12))
    assert "wall-clean" not in found
    assert found["clean_share"] == pytest.approx(4 / 12)


def test_a_call_that_sleeps_has_no_clean_sample_and_no_valid_cpu_time() -> None:
    found = clocks.clocks(samples([21] * 20, [20] * 20) | {"calls": np.ones(20, np.int64)})
    assert "wall-clean" not in found
    sleeper = clocks.clocks(samples([30] * 20, [20] * 20))
    assert sleeper["cpu_valid"] is False


@pytest.mark.parametrize(("cpu", "valid"), [(10.0, True), (9.7, True), (9.0, False), (19.0, False)])
def test_cpu_time_is_valid_where_one_thread_computes_without_waiting(cpu: float, valid: bool) -> None:
    assert clocks.clocks(samples([10.0] * 20, [cpu] * 20))["cpu_valid"] is valid


def test_preemption_of_most_samples_leaves_cpu_time_valid() -> None:
    assert clocks.clocks(samples([10.0] * 4 + [25.0] * 16, [10.0] * 20))["cpu_valid"] is True


def test_a_thread_that_never_waits_costs_its_cpu_time_however_busy_the_machine_is() -> None:
    """Every call of 10 ms was preempted, for longer than it computed: no sample is undisturbed."""
    crowded = samples([33.0] * 20, [10.0] * 20, nivcsw=[2] * 20, nvcsw=[0] * 20)
    assert clocks.clocks(crowded)["cpu_valid"] is True
    asleep = samples([10.4] * 20, [10.0] * 20, nvcsw=[1] * 20)
    assert clocks.clocks(asleep)["cpu_valid"] is False, "it waits, if only for 4 % of its time"


def test_cpu_time_of_several_threads_is_not_the_cost_of_a_call() -> None:
    two = samples([10.0] * 20, [19.0] * 20, nvcsw=[0] * 20, cpu_ns=[10 * MS] * 20)
    assert clocks.clocks(two)["cpu_valid"] is False


def test_no_samples_are_no_clocks() -> None:
    assert clocks.clocks({}) == {}
    assert clocks.clocks(samples([])) == {}


def turns(times: list[list[float]]) -> dict[str, np.ndarray]:
    """Samples of one process: a list of milliseconds for each slice."""
    numbers = [number for number, slice_ms in enumerate(times) for _ in slice_ms]
    return samples([ms for slice_ms in times for ms in slice_ms], slice=numbers)


def test_turns_are_the_medians_of_their_warm_samples() -> None:
    found = clocks.clocks(turns([[99, 2, 4], [99, 6], [8]]))
    assert found["turns"]["wall"] == found["turns"]["cpu"] == [3.0, 6.0, 8.0]


def test_a_slice_without_a_clean_sample_is_none_among_the_clean_turns() -> None:
    wall = turns([[1, 10, 10, 10], [1, 10, 10, 10], [1, 30, 30, 30]])
    found = clocks.clocks(wall | {"process_ns": np.minimum(wall["wall_ns"], 10 * MS)})
    assert found["turns"]["wall-clean"] == [10.0, 10.0, None]


def test_fresh_launches_have_no_turns() -> None:
    assert "turns" not in clocks.clocks(samples([1, 2, 3]))


def test_what_the_machine_did_during_a_turn_of_each_side_is_not_in_the_ratio() -> None:
    """Drift in both, a burst in one slice of one side, and a planted 3 %: medians alone see 33 %."""
    drift = [10, 10, 10, 20, 20, 20, 20, 20]
    base = clocks.clocks(turns([[99, ms, ms] for ms in drift]))
    slower = [1.03 * ms for ms in drift]
    slower[3:5] = [10.3, 20.6]  # the machine was calm again a little earlier
    candidate = clocks.clocks(turns([[99, ms, ms] for ms in slower]))
    mine, other = clocks.block_of(base, candidate, "wall")
    assert other / mine == pytest.approx(1.03)
    assert mine * other == pytest.approx(base["wall"] * candidate["wall"]), "the level stays"


@given(
    st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)), max_size=12),
    st.floats(0.01, 1e4),
    st.floats(0.01, 1e4),
)
def test_exchanging_the_sides_exchanges_the_block(
    pairs: list[tuple[float, float]], base: float, candidate: float
) -> None:
    mine, other = [a for a, _ in pairs], [b for _, b in pairs]
    one = clocks.paired_by_turns(base, candidate, (mine, other))
    two = clocks.paired_by_turns(candidate, base, (other, mine))
    assert one == two[::-1]


@pytest.mark.parametrize(
    "odd",
    [
        ([1.0] * 3, [2.0] * 3),  # too few
        ([1.0] * 5, [2.0] * 6),  # not of one pair
        ([1.0] * 6, [None, None, None, 2.0, 2.0, 2.0]),
        ([0.0] * 6, [2.0] * 6),
        ((), ()),
    ],
)
def test_without_enough_common_turns_the_medians_stand(odd: tuple[list[float], list[float]]) -> None:
    assert clocks.paired_by_turns(10.0, 11.0, odd) == (10.0, 11.0)
