"""One half of a live pair: warmed up once, then timed in slices, whenever it is its turn.

Two processes are alive together and take turns, so that whatever the machine does in these
seconds hits both alike. In between this one sleeps in one system call: no spinning, no
heartbeat oftener than every ten seconds. Nothing is written or sent inside a slice, and
nothing but the last sample's time lies between it and the answer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from matrix_adapters import checks, clock, memory, probes, rotation, steps, tensors
from matrix_adapters.adapter import Adapter
from matrix_adapters.failures import Misunderstood
from matrix_adapters.launch import Launch
from matrix_adapters.protocol import (
    DONE_WORD,
    READY_WORD,
    SAMPLES_FILE,
    Measure,
    SliceOptions,
    Task,
    from_plain,
)
from matrix_adapters.words import Words

LAYOUT = "live-pair"
#: beside those of `clock.Samples`: which slice a sample was taken in, and a pilot's warm-up call by call
ARRAYS = ("slice", "warmup_ns")
#: a turn of the other half is shorter; after that much silence the heartbeat says "parked", and then
#: every ten seconds that there is life
PARKED_AFTER_S, PARKED_BEAT_S = 1.0, 10.0
#: a frozen number of warm-up calls is made whatever `max_warmup_s` says, unless it takes this much longer
WARMUP_PATIENCE = 10
PILOT_LEAST = 3


def measure_in_turns(adapter: Adapter, task: Task, launch: Launch, words: Words | None) -> None:
    """As a launch that is timed in one go, but in slices, each when asked for.

    Raises Misunderstood or Interrupted for what goes wrong between the two.
    """
    if words is None:
        raise Misunderstood("nobody says when: this kind of launch is one half of a live pair")
    options = options_of(task)
    begun = steps.begin(adapter, task, launch)
    turning = rotation.begin(task.measure.cache, begun.runner, begun.inputs, launch)
    loop, beat = turning.loop, launch.heart.beat
    target = clock.sample_target_ns(task.measure)
    with launch.phase("warmup", beating=False):
        warmup = _warm_up(loop, begun.feed, task.measure, options, launch)
        calls = options.calls or clock.calibrate(loop, begun.feed, warmup.fastest_ns, target, beat)
    launch.probes["machine"] = probes.machine()
    launch.probes["before"] = probes.moment(task.device)
    turns = Turns(loop, begun.feed, calls)
    with clock.collector_off(), launch.phase("steady", beating=False):
        words.answer(READY_WORD)
        while (wanted := _wanted(words, launch)) is not None:
            turns.take(wanted, launch)
            words.answer(DONE_WORD)
        unasked = not turns.parts
        if unasked:  # the other half did not get so far: whether this one works is worth knowing
            turns.take(max(task.measure.min_samples, 2), launch)
    launch.probes["after"] = probes.moment(task.device)
    launch.probes["libraries"] = probes.libraries()
    launch.heart.enter("store")
    samples, numbers = turns.samples()
    kept = kept_samples(numbers)
    steps.report_samples(samples.only(kept), warmup, target, begun.runner, launch)
    memory.report_own(begun.runner, launch)
    turning.check(begun.facts)
    launch.sampling |= {
        **turning.told,
        "layout": LAYOUT,
        "slices": len(turns.parts),
        "dropped": len(samples) - int(kept.sum()),  # the first sample of every slice finds cold caches
        "pilot": options.pilot is not None,
        "unasked": unasked,
    }
    launch.absent["energy_j_per_item"] = "both halves of a live pair share the counter"
    more = (numbers,) if options.pilot is None else (numbers, warmup.ns)
    tensors.save(launch.out_dir / SAMPLES_FILE, samples.arrays() | dict(zip(ARRAYS, more, strict=False)))
    launch.flags += checks.slice_flags(samples.only(kept), numbers[kept])
    steps.end(begun, tensors.host_copy(turns.outputs), task, launch)


class Turns:
    """What was timed so far: one part a slice."""

    def __init__(self, loop: clock.Loop, feed: object, calls: int) -> None:
        self._loop, self._feed, self._calls = loop, feed, calls
        self.parts: list[clock.Samples] = []
        self.outputs: object = None

    def take(self, wanted: int, launch: Launch) -> None:
        """Time one slice of exactly `wanted` samples."""
        plan = Measure(samples=wanted, min_samples=wanted)
        samples, self.outputs = clock.steady(self._loop, self._feed, self._calls, plan, launch.heart.beat)
        self.parts.append(samples)

    def samples(self) -> tuple[clock.Samples, clock.Integers]:
        """All samples in the order of time, and the number of each one's slice, from 0."""
        lengths = [len(part) for part in self.parts]
        return clock.joined(self.parts), np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def kept_samples(numbers: clock.Integers) -> npt.NDArray[np.bool_]:
    """All but the first sample of every slice that has more than one, by the samples' slice numbers."""
    first = np.diff(numbers, prepend=-1) != 0
    alone = np.bincount(numbers)[numbers] == 1
    kept: npt.NDArray[np.bool_] = ~first | alone
    return kept


def options_of(task: Task) -> SliceOptions:
    """Raises ProtocolError for what is no option of this kind."""
    return from_plain(SliceOptions, dict(task.options))


def _warm_up(
    loop: clock.Loop, feed: object, measure: Measure, options: SliceOptions, launch: Launch
) -> clock.Warmup:
    beat, pilot, wanted = launch.heart.beat, options.pilot, options.warmup_calls
    if pilot is not None:
        return clock.warm_up_by(pilot.calls, loop, feed, limit_s=pilot.seconds, beat=beat, least=PILOT_LEAST)
    if wanted is None:
        return clock.warm_up(loop, feed, measure, beat)
    limit_s = WARMUP_PATIENCE * measure.max_warmup_s
    warmup = clock.warm_up_by(wanted, loop, feed, limit_s=limit_s, beat=beat)
    if warmup.calls < wanted:
        text = f"warm-up ended after {limit_s:g} s, with {warmup.calls} of {wanted} calls"
        launch.flag("short_warmup", text)
    return warmup


def _wanted(words: Words, launch: Launch) -> int | None:
    """Sleep until the next turn: its samples; None to end."""
    heart = launch.heart
    if not words.wait(PARKED_AFTER_S):
        heart.enter("parked")
        while not words.wait(PARKED_BEAT_S):
            heart.beat()
    wanted = words.samples_wanted()
    if heart.phase != "slices":
        heart.enter("slices")
    heart.beat()  # before the slice, so that none is due inside a short one
    return wanted
