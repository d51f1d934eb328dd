"""The timed loop, on a clock that the tests move themselves: no test here depends on the machine's speed."""

from __future__ import annotations

import gc
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix_adapters import clock
from matrix_adapters.protocol import Measure

MS = 1_000_000


class FakeClock:
    """Stands in for the module `time` inside `clock`: it moves when a fake runner works."""

    def __init__(self, read_ns: int = 0) -> None:
        self.now = 1_000
        self.cpu = 0
        self.read_ns = read_ns

    def perf_counter_ns(self) -> int:
        self.now += self.read_ns
        return self.now

    def thread_time_ns(self) -> int:
        return self.cpu

    def process_time_ns(self) -> int:
        return self.cpu


class FakeRunner:
    """Each call takes as long as `lengths` says (the last one for ever); `events` says what happened."""

    def __init__(self, time: FakeClock, *lengths: int, synchronous: bool = False) -> None:
        self._time, self._lengths = time, list(lengths)
        self.synchronous = synchronous
        self.events: list[str] = []
        self.feeds: list[Any] = []
        self.calls = 0

    def run(self, feed: Any) -> int:
        length = self._lengths.pop(0) if len(self._lengths) > 1 else self._lengths[0]
        self._time.now += length
        self._time.cpu += length // 2
        self.feeds.append(feed)
        self.events.append("run")
        self.calls += 1
        return self.calls

    def sync(self) -> None:
        self.events.append("sync")

    def fetch(self, outputs: int) -> int:
        self.events.append("fetch")
        return outputs


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(clock, "time", fake)
    return fake


def nothing() -> None:
    pass


def test_the_device_is_synchronised_after_every_call_and_before_the_outputs_are_fetched(
    time: FakeClock,
) -> None:
    runner = FakeRunner(time, MS)
    clock.loop_of(runner)({}, 2)
    assert runner.events == ["run", "sync", "fetch"] * 2


def test_only_a_runner_that_says_it_is_synchronous_is_not_synchronised(time: FakeClock) -> None:
    runner = FakeRunner(time, MS, synchronous=True)
    clock.loop_of(runner)({}, 2)
    assert runner.events == ["run", "fetch"] * 2


def test_a_truthy_word_does_not_count_as_synchronous(time: FakeClock) -> None:
    runner = FakeRunner(time, MS)
    runner.synchronous = "cuda"  # type: ignore[assignment]
    clock.loop_of(runner)({}, 1)
    assert "sync" in runner.events


def test_the_time_of_an_asynchronous_device_is_in_the_sample(time: FakeClock) -> None:
    class Device(FakeRunner):
        def sync(self) -> None:
            time.now += 20 * MS

    samples, _ = clock.steady(clock.loop_of(Device(time, 1)), {}, 1, Measure(samples=3), nothing)
    assert samples.wall_ns.tolist() == [20 * MS + 1] * 3


def test_warm_up_makes_the_calls_asked_for_with_the_feed_that_is_measured(time: FakeClock) -> None:
    runner, feed = FakeRunner(time, 100 * MS), {"x": np.zeros(2)}
    warmup = clock.warm_up(clock.loop_of(runner), feed, Measure(warmup_calls=4), nothing)
    assert warmup.calls == runner.calls == 4
    assert all(seen is feed for seen in runner.feeds)


def test_warm_up_is_never_empty_even_when_its_time_is_over_before_it_began(time: FakeClock) -> None:
    runner = FakeRunner(time, 100 * MS)
    warmup = clock.warm_up(clock.loop_of(runner), {}, Measure(warmup_calls=0, max_warmup_s=0.0), nothing)
    assert warmup.calls == runner.calls == 1


def test_warm_up_stops_at_its_time_limit_when_calls_are_slow(time: FakeClock) -> None:
    runner = FakeRunner(time, 900 * MS)
    warmup = clock.warm_up(clock.loop_of(runner), {}, Measure(warmup_calls=100, max_warmup_s=2.0), nothing)
    assert warmup.calls == 3


def test_short_calls_warm_up_for_fifty_milliseconds(time: FakeClock) -> None:
    runner = FakeRunner(time, MS)
    assert clock.warm_up(clock.loop_of(runner), {}, Measure(warmup_calls=3), nothing).calls == 50


def test_warm_up_remembers_the_fastest_call(time: FakeClock) -> None:
    runner = FakeRunner(time, 90 * MS, 5 * MS, 7 * MS)
    assert clock.warm_up(clock.loop_of(runner), {}, Measure(), nothing).fastest_ns == 5 * MS


@given(length=st.integers(1, 100_000_000_000), target=st.integers(1_000, 10_000_000))
def test_a_sample_is_long_enough_whatever_the_length_of_a_call(length: int, target: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        time = FakeClock(read_ns=60)
        patch.setattr(clock, "time", time)
        # Batches of a nanosecond call are long: move the clock without really calling.
        calls = clock.calibrate(lambda _, n: setattr(time, "now", time.now + n * length), {}, length, target)
    assert calls * length + 60 >= target
    assert calls == 1 or calls * length <= 2 * target + length


def test_calls_are_not_batched_when_one_is_long_enough(time: FakeClock) -> None:
    runner = FakeRunner(time, 10 * MS)
    assert clock.calibrate(clock.loop_of(runner), {}, 10 * MS, MS) == 1
    assert runner.calls == 0, "a long call needs no trial"


def test_one_slow_trial_does_not_make_the_batch_too_small(time: FakeClock) -> None:
    runner = FakeRunner(time, 50 * MS, 1_000)  # preempted in the first trial
    assert clock.calibrate(clock.loop_of(runner), {}, 1_000, 200_000) >= 200


@pytest.mark.parametrize(("cost", "target"), [(100.0, 200_000), (2_000.0, 200_000), (3_400.0, 400_000)])
def test_slow_clocks_make_longer_samples_in_steps(
    monkeypatch: pytest.MonkeyPatch, cost: float, target: int
) -> None:
    monkeypatch.setattr(clock, "edge_cost_ns", lambda: cost)
    assert clock.sample_target_ns(Measure(min_sample_s=200e-6)) == target


@given(cost=st.floats(1.0, 1e6), least=st.floats(1e-9, 1.0))
def test_reading_the_clocks_never_costs_more_than_one_per_cent_of_the_target(
    cost: float, least: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "edge_cost_ns", lambda: cost)
        target = clock.sample_target_ns(Measure(min_sample_s=least))
    assert target >= int(least * 1e9)
    assert cost <= 0.01 * target * (1 + 1e-9)


def test_sampling_ends_at_the_number_of_samples_wanted(time: FakeClock) -> None:
    runner = FakeRunner(time, MS)
    samples, outputs = clock.steady(clock.loop_of(runner), {}, 5, Measure(samples=7), nothing)
    assert len(samples) == 7
    assert samples.calls.tolist() == [5] * 7
    assert samples.wall_ns.tolist() == [5 * MS] * 7
    assert samples.per_call(samples.wall_ns).tolist() == [float(MS)] * 7
    assert outputs == runner.calls == 35, "the outputs are those of the last timed call"


def test_sampling_ends_when_its_time_is_over(time: FakeClock) -> None:
    runner = FakeRunner(time, 400 * MS)
    samples, _ = clock.steady(clock.loop_of(runner), {}, 1, Measure(samples=100, max_steady_s=2.0), nothing)
    assert len(samples) == 5


def test_sampling_never_ends_with_fewer_than_the_least_number_of_samples(time: FakeClock) -> None:
    runner = FakeRunner(time, 60_000 * MS)
    samples, _ = clock.steady(
        clock.loop_of(runner), {}, 1, Measure(samples=22, max_steady_s=3.0, min_samples=3), nothing
    )
    assert len(samples) == 3


def test_a_first_call_that_compiles_is_not_in_the_samples_of_the_rest(time: FakeClock) -> None:
    runner = FakeRunner(time, 500 * MS, 5 * MS)
    loop = clock.loop_of(runner)
    loop({}, 1)
    clock.warm_up(loop, {}, Measure(), nothing)
    samples, _ = clock.steady(loop, {}, 1, Measure(samples=10), nothing)
    assert set(samples.wall_ns.tolist()) == {5 * MS}


def test_the_heartbeat_is_never_inside_a_sample(time: FakeClock) -> None:
    def slow_beat() -> None:
        time.now += 7_000 * MS

    samples, _ = clock.steady(
        clock.loop_of(FakeRunner(time, MS)), {}, 1, Measure(samples=3, min_samples=3), slow_beat
    )
    assert samples.wall_ns.tolist() == [MS] * 3


def test_samples_know_when_they_began_and_what_they_cost(time: FakeClock) -> None:
    samples, _ = clock.steady(clock.loop_of(FakeRunner(time, MS)), {}, 1, Measure(samples=3), nothing)
    assert np.diff(samples.start_ns).tolist() == [MS] * 2
    assert samples.cpu_ns.tolist() == samples.process_ns.tolist() == [MS // 2] * 3
    arrays = samples.arrays()
    assert set(arrays) == {"wall_ns", "cpu_ns", "process_ns", "nivcsw", "nvcsw", "calls", "start_ns"}
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.int64)}


@given(length=st.integers(1, 100_000_000_000))
def test_a_duration_keeps_its_unit_from_a_nanosecond_to_a_hundred_seconds(length: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        time = FakeClock()
        patch.setattr(clock, "time", time)
        samples, _ = clock.steady(
            clock.loop_of(FakeRunner(time, length)), {}, 1, Measure(samples=1, min_samples=1), nothing
        )
    assert samples.wall_ns.tolist() == [length]


@pytest.mark.parametrize("was_on", [True, False])
def test_the_garbage_collector_is_off_inside_and_as_before_afterwards(was_on: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        with pytest.raises(ZeroDivisionError), clock.collector_off():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if before else gc.disable)()


def test_garbage_is_collected_before_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fake = types.SimpleNamespace(
        isenabled=lambda: True,
        collect=lambda: calls.append("collect"),
        disable=lambda: calls.append("disable"),
        enable=lambda: calls.append("enable"),
    )
    monkeypatch.setattr(clock, "gc", fake)
    with clock.collector_off():
        calls.append("sample")
    assert calls == ["collect", "disable", "sample", "enable"]
