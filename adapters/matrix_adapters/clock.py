"""The timed loop: it calls the runner and reads the clock, and does nothing else.

One *call* is `fetch(run(feed))` with the device synchronised in between: host arrays
in, host arrays out (`BOUNDARY`), the only boundary compared across frameworks. One
*sample* is one or more calls between two reads of the clock; calls too short for the
clock are batched until reading clocks costs under 1 % of a sample.

Wall time is read innermost (`perf_counter_ns`, on Linux the system-wide monotonic
clock, so samples of two processes can be ordered in time). CPU time and involuntary
context switches cost ten times as much to read, so they are read only at a sample's
edges, outside the wall time.

All times are integers in nanoseconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import math
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix_adapters.protocol import Measure

BOUNDARY = "host_to_host"
CLOCK_SHARE = 0.01  # of a sample; what reading all the clocks may cost at most
MIN_WARMUP_NS = 50_000_000  # short calls warm up at least this long: caches, clock ramp
MAX_CALLS = 1 << 26  # per sample; a guard against a clock that stands still

Loop = Callable[[Any, int], Any]
Beat = Callable[[], None]
Integers = npt.NDArray[np.int64]

_SWITCH_SCOPE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """What the clock said, one entry a sample; totals of the sample, not per call."""

    wall_ns: Integers
    cpu_ns: Integers  # CPU time of the calling thread
    process_ns: Integers  # CPU time of all threads of the process
    nivcsw: Integers  # involuntary context switches of the calling thread: it was preempted
    nvcsw: Integers  # voluntary ones: it waited for something
    calls: Integers
    start_ns: Integers

    def __len__(self) -> int:
        return len(self.wall_ns)

    def per_call(self, total: Integers) -> npt.NDArray[np.float64]:
        """A total of each sample divided by its calls, float64[n], nanoseconds."""
        return total / self.calls

    def arrays(self) -> dict[str, Integers]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def only(self, kept: npt.NDArray[np.bool_]) -> Samples:
        """The samples where `kept`, bool[n], is true."""
        return Samples(**{name: values[kept] for name, values in self.arrays().items()})


def joined(parts: Sequence[Samples]) -> Samples:
    """Samples of one process that were taken at several times, in that order; at least one part."""
    names = [field.name for field in dataclasses.fields(Samples)]
    return Samples(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclasses.dataclass(frozen=True, slots=True)
class Warmup:
    """How the runner was warmed up, at exactly the shapes that are measured. Never empty."""

    ns: Integers  # wall time of every call, timed one by one

    @property
    def calls(self) -> int:
        return len(self.ns)

    @property
    def fastest_ns(self) -> int:
        return int(self.ns.min())


def loop_of(runner: Any) -> Loop:
    """`loop(feed, n)`: call the runner `n` times, return the last call's host arrays.

    `sync` is called after every `run`, unless the runner says `synchronous = True`:
    that its `run` returns only when the result is there. The test of the loop's own
    cost is why the calls stand in the loop's body instead of in one composed function.
    """
    if getattr(runner, "synchronous", False) is True:
        return functools.partial(_calls, runner.run, runner.fetch)
    return functools.partial(_synchronised_calls, runner.run, runner.sync, runner.fetch)


def rotating_loop_of(runner: Any, feeds: Sequence[Any]) -> Loop:
    """`loop(_, n)`: as `loop_of`, but each call has the next of `feeds`, round and round, across loops.

    The iterator is made here; a turn of the loop costs what it costs with one feed.
    """
    turns = cycle(tuple(feeds))
    if getattr(runner, "synchronous", False) is True:
        return functools.partial(_rotating_calls, runner.run, runner.fetch, turns)
    return functools.partial(_synchronised_rotating_calls, runner.run, runner.sync, runner.fetch, turns)


def warm_up(loop: Loop, feed: Any, measure: Measure, beat: Beat) -> Warmup:
    """Call until `warmup_calls` are done (and 50 ms are gone) or `max_warmup_s` is over; at least once."""
    return _called_until(
        lambda calls, ns: calls >= measure.warmup_calls and ns >= MIN_WARMUP_NS,
        loop,
        feed,
        limit_s=measure.max_warmup_s,
        beat=beat,
    )


def warm_up_by(calls: int, loop: Loop, feed: Any, *, limit_s: float, beat: Beat, least: int = 1) -> Warmup:
    """Exactly `calls` calls, fewer where `limit_s` is over before; never fewer than `least`."""
    return _called_until(lambda done, _: done >= calls, loop, feed, limit_s=limit_s, beat=beat, least=least)


def sample_target_ns(measure: Measure) -> int:
    """How long a sample has to be: `min_sample_s`, doubled until reading the clocks is cheap beside it.

    Doubling keeps the target the same from launch to launch: it is part of the contract.
    """
    least = max(1, int(measure.min_sample_s * 1e9))
    needed = edge_cost_ns() / CLOCK_SHARE
    return least << max(0, math.ceil(math.log2(needed / least)))


def calibrate(loop: Loop, feed: Any, guess_ns: int, target_ns: int, beat: Beat = lambda: None) -> int:
    """Calls per sample so that even the fastest of three samples lasts `target_ns`."""
    if guess_ns >= 10 * target_ns:
        return 1
    calls = 1
    while calls < MAX_CALLS:
        fastest = max(1, min(_duration_ns(loop, feed, calls) for _ in range(3)))
        beat()
        if fastest >= target_ns:
            return calls
        calls = min(MAX_CALLS, max(calls + 1, math.ceil(1.1 * calls * target_ns / fastest)))
    return calls


def steady(loop: Loop, feed: Any, calls: int, measure: Measure, beat: Beat) -> tuple[Samples, Any]:
    """Time samples of `calls` calls each. Returns them and the host arrays of the last timed call.

    Ends at `samples`, or after `max_steady_s` with at least `min_samples`. The caller
    turns the garbage collector off (`collector_off`). `beat` runs between samples only.
    """
    wanted = max(measure.samples, measure.min_samples, 1)
    least = max(measure.min_samples, 1)
    limit = int(measure.max_steady_s * 1e9)
    wall, cpu, process, preempted, waited, starts = (np.zeros(wanted, np.int64) for _ in range(6))
    now, thread_cpu, process_cpu = time.perf_counter_ns, time.thread_time_ns, time.process_time_ns
    outputs: Any = None
    count = 0
    begin = now()
    while count < wanted:
        preempted_before, waited_before = _switches()
        process_before = process_cpu()
        cpu_before = thread_cpu()
        start = now()
        outputs = loop(feed, calls)
        end = now()
        cpu_after = thread_cpu()
        process_after = process_cpu()
        preempted_after, waited_after = _switches()
        preempted[count] = preempted_after - preempted_before
        waited[count] = waited_after - waited_before
        process[count] = process_after - process_before
        cpu[count] = cpu_after - cpu_before
        wall[count] = end - start
        starts[count] = start
        count += 1
        if count >= least and end - begin >= limit:
            break
        beat()
    samples = Samples(
        wall_ns=wall[:count],
        cpu_ns=cpu[:count],
        process_ns=process[:count],
        nivcsw=preempted[:count],
        nvcsw=waited[:count],
        calls=np.full(count, calls, np.int64),
        start_ns=starts[:count],
    )
    return samples, outputs


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Collect garbage once, then keep the collector out of the samples."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def loop_cost_ns(runner: Any, target_ns: int) -> tuple[float, float, float]:
    """What the loop itself costs per call: the median of 21 samples and its interval.

    The 6th and the 16th value bound the median with 97 % confidence, whatever the
    distribution. Meant for a runner that does nothing (`matrix_adapters.null`). Measure
    it after the steady phase: the interpreter specialises the loop for the first runner.
    """
    loop = loop_of(runner)
    calls = calibrate(loop, {}, 0, target_ns)
    values = sorted(_duration_ns(loop, {}, calls) / calls for _ in range(21))
    return values[10], values[5], values[15]


def read_cost_ns() -> float:
    """What reading the wall clock adds to a sample's wall time (one read, nanoseconds)."""
    return _fastest_ns(time.perf_counter_ns)


def edge_cost_ns() -> float:
    """What reading every clock at both edges of a sample costs, nanoseconds."""
    readers: tuple[Callable[[], object], ...] = (
        time.perf_counter_ns,
        time.thread_time_ns,
        time.process_time_ns,
        _switches,
    )
    return 2 * sum(_fastest_ns(reader) for reader in readers)


def _called_until(
    enough: Callable[[int, int], bool],
    loop: Loop,
    feed: Any,
    *,
    limit_s: float,
    beat: Beat,
    least: int = 1,
) -> Warmup:
    """Single calls until `enough(calls, nanoseconds so far)`, or the limit is over."""
    limit = int(limit_s * 1e9)
    series: list[int] = []
    begin = time.perf_counter_ns()
    while True:
        start = time.perf_counter_ns()
        loop(feed, 1)
        end = time.perf_counter_ns()
        series.append(end - start)
        beat()
        if len(series) >= least and (end - begin >= limit or enough(len(series), end - begin)):
            return Warmup(np.array(series, np.int64))


def _calls(run: Callable[[Any], Any], fetch: Callable[[Any], Any], feed: Any, n: int) -> Any:
    outputs = None
    for _ in repeat(None, n):
        outputs = fetch(run(feed))
    return outputs


def _synchronised_calls(
    run: Callable[[Any], Any], sync: Callable[[], None], fetch: Callable[[Any], Any], feed: Any, n: int
) -> Any:
    outputs = None
    for _ in repeat(None, n):
        outputs = run(feed)
        sync()
        outputs = fetch(outputs)
    return outputs


def _rotating_calls(
    run: Callable[[Any], Any], fetch: Callable[[Any], Any], turns: Iterator[Any], _: Any, n: int
) -> Any:
    outputs = None
    for feed in islice(turns, n):
        outputs = fetch(run(feed))
    return outputs


def _synchronised_rotating_calls(
    run: Callable[[Any], Any],
    sync: Callable[[], None],
    fetch: Callable[[Any], Any],
    turns: Iterator[Any],
    _: Any,
    n: int,
) -> Any:
    outputs = None
    for feed in islice(turns, n):
        outputs = run(feed)
        sync()
        outputs = fetch(outputs)
    return outputs


def _duration_ns(loop: Loop, feed: Any, calls: int) -> int:
    start = time.perf_counter_ns()
    loop(feed, calls)
    return time.perf_counter_ns() - start


def _switches() -> tuple[int, int]:
    """Involuntary and voluntary context switches so far."""
    usage = resource.getrusage(_SWITCH_SCOPE)
    return usage.ru_nivcsw, usage.ru_nvcsw


def _fastest_ns(reader: Callable[[], object], reads: int = 50, rounds: int = 20) -> float:
    best = math.inf
    for _ in repeat(None, rounds):
        start = time.perf_counter_ns()
        for _ in repeat(None, reads):
            reader()
        best = min(best, (time.perf_counter_ns() - start) / reads)
    return best
