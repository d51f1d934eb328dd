"""One process's samples to one number a clock, and two processes' turns to what a block has of each side.

`wall` is what a user waits and what latency means. `wall-clean` is the same over the samples
that nothing interrupted: it keeps its precision on an overloaded machine, where it exists.
`cpu` is another metric: a sleep adds nothing to it, so it never certifies latency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

#: a sample is clean when wall and CPU time differ by less than this: the clocks' own error
CLEAN_SHARE, CLEAN_NS = 0.01, 20_000
#: fewer clean samples than this say nothing about the process
LEAST_CLEAN = 5
#: a pair whose sides share fewer turns than this is compared by its medians
LEAST_TURNS = 4
#: CPU time is the cost of the call only where one thread computes and does not wait
BUSY_SHARE, ONE_THREAD = 0.95, 1.05


def clocks(samples: Mapping[str, Integers]) -> dict[str, Any]:
    """Medians per call, in milliseconds, of one process: `wall`, `wall-clean`, `cpu`.

    `samples` holds the arrays of `samples.npz`, int64[n], totals of each sample: `wall_ns`,
    `process_ns` (CPU time of all threads), `nivcsw`, `calls`, and in a live pair `slice`, the
    number of the slice. The first sample of a slice finds caches that the other side filled,
    so it is dropped where the slice has another. Also returned: `clean_share` of the samples
    kept, 0 to 1, and `cpu_valid`. `wall-clean` is absent with fewer than 5 clean samples.
    Of a live pair also `turns`: the same medians slice by slice, as a list by clock, with None for
    a slice that has no clean sample. An empty mapping: there are no samples.
    """
    if "wall_ns" not in samples or not len(samples["wall_ns"]):
        return {}
    kept = warm(samples.get("slice"), len(samples["wall_ns"]))
    wall, cpu = samples["wall_ns"][kept], samples["process_ns"][kept]
    calls, switches = samples["calls"][kept], samples["nivcsw"][kept]
    clean = (switches == 0) & (np.abs(wall - cpu) <= np.maximum(CLEAN_SHARE * cpu, CLEAN_NS))
    found: dict[str, Any] = {
        "wall": _median_ms(wall, calls),
        "cpu": _median_ms(cpu, calls),
        "cpu_valid": _computes_alone(samples, kept),
        "clean_share": float(clean.mean()),
    }
    if clean.sum() >= LEAST_CLEAN:
        found["wall-clean"] = _median_ms(wall[clean], calls[clean])
    if "slice" in samples:
        numbers = samples["slice"][kept]
        found["turns"] = {
            "wall": _by_turn(wall / calls, numbers, np.ones(len(wall), dtype=bool)),
            "cpu": _by_turn(cpu / calls, numbers, np.ones(len(wall), dtype=bool)),
        }
        if "wall-clean" in found:
            found["turns"]["wall-clean"] = _by_turn(wall / calls, numbers, clean)
    return found


def block_of(base: Mapping[str, Any], candidate: Mapping[str, Any], clock: str) -> tuple[float, float]:
    """`paired_by_turns` of what `clocks` found of both sides; each must have that clock."""
    turns = [side.get("turns", {}).get(clock, ()) for side in (base, candidate)]
    return paired_by_turns(base[clock], candidate[clock], (turns[0], turns[1]))


def paired_by_turns(
    base: float, candidate: float, turns: tuple[Sequence[float | None], Sequence[float | None]]
) -> tuple[float, float]:
    """What a block has of both sides of a live pair, from what each had alone and from their turns.

    Two slices with the same number follow each other within a fraction of a second, so that what
    the machine did meanwhile is in both. Their ratio does not hold it; the median over all of them
    does not hold what hit one slice and not the other. The geometric mean of both sides' own numbers
    stays the level. Exchanging the sides exchanges the answer. With fewer than 4 common turns, or
    a number that is no time, the sides' own numbers are returned.
    """
    times = [(a, b) for a, b in zip(*turns, strict=False) if a and b and a > 0 and b > 0]
    if len(times) < LEAST_TURNS or len(turns[0]) != len(turns[1]) or not (base > 0 and candidate > 0):
        return base, candidate
    half = float(np.median([math.log(b) - math.log(a) for a, b in times])) / 2
    level = math.sqrt(base * candidate)
    return level * math.exp(-half), level * math.exp(half)


def warm(slices: Integers | None, count: int) -> npt.NDArray[np.bool_]:
    """Which of `count` samples to keep, bool[n]: all but the first of each slice that has two or more."""
    kept = np.ones(count, dtype=bool)
    if slices is None:
        return kept
    starts = np.flatnonzero(np.r_[True, slices[1:] != slices[:-1]])
    lengths = np.diff(np.r_[starts, count])
    kept[starts[lengths > 1]] = False
    return kept


def _by_turn(
    per_call_ns: npt.NDArray[np.float64], slices: Integers, chosen: npt.NDArray[np.bool_]
) -> list[float | None]:
    """Milliseconds a call of each slice, by the median of its chosen samples; None without any."""
    bounds = np.flatnonzero(np.diff(slices)) + 1
    return [
        round(float(np.median(times[taken])) / 1e6, 9) if taken.any() else None
        for times, taken in zip(np.split(per_call_ns, bounds), np.split(chosen, bounds), strict=True)
    ]


def _median_ms(total_ns: Integers, calls: Integers) -> float:
    return float(np.median(total_ns / calls)) / 1e6


def _computes_alone(samples: Mapping[str, Integers], kept: npt.NDArray[np.bool_]) -> bool:
    """Whether CPU time is what a call costs: one thread computes, and does not wait.

    A thread that waits gives its processor away by itself (`nvcsw`); one that computes only
    loses it, however busy the machine is. Where nobody counted that, the least disturbed tenth
    of the samples has to spend its wall time on one processor.
    """
    wall, process = samples["wall_ns"][kept], samples["process_ns"][kept]
    thread = samples.get("cpu_ns", samples["process_ns"])[kept]
    if not np.median(process / np.maximum(thread, 1)) <= ONE_THREAD:
        return False
    share = process / np.maximum(wall, 1)
    if np.median(share) > ONE_THREAD:
        return False
    if "nvcsw" in samples:
        return bool(np.median(samples["nvcsw"][kept]) == 0)
    return bool(np.quantile(share, 0.9) >= BUSY_SHARE)
