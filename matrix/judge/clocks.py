"""One process's samples to one number a clock: what a block has of each side.

`wall` is what a user waits and what latency means. `wall-clean` is the same over the samples
that nothing interrupted: it keeps its precision on an overloaded machine, where it exists.
`cpu` is another metric: a sleep adds nothing to it, so it never certifies latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

#: a sample is clean when wall and CPU time differ by less than this: the clocks' own error
CLEAN_SHARE, CLEAN_NS = 0.01, 20_000
#: fewer clean samples than this say nothing about the process
LEAST_CLEAN = 5
#: CPU time is the cost of the call only where one thread computes and does not wait
BUSY_SHARE, ONE_THREAD = 0.95, 1.05


def clocks(samples: Mapping[str, Integers]) -> dict[str, Any]:
    """Medians per call, in milliseconds, of one process: `wall`, `wall-clean`, `cpu`.

    `samples` holds the arrays of `samples.npz`, int64[n], totals of each sample: `wall_ns`,
    `process_ns` (CPU time of all threads), `nivcsw`, `calls`, and in a live pair `slice`, the
    number of the slice. The first sample of a slice finds caches that the other side filled,
    so it is dropped where the slice has another. Also returned: `clean_share` of the samples
    kept, 0 to 1, and `cpu_valid`. `wall-clean` is absent with fewer than 5 clean samples.
    An empty mapping: there are no samples.
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
    return found


def warm(slices: Integers | None, count: int) -> npt.NDArray[np.bool_]:
    """Which of `count` samples to keep, bool[n]: all but the first of each slice that has two or more."""
    kept = np.ones(count, dtype=bool)
    if slices is None:
        return kept
    starts = np.flatnonzero(np.r_[True, slices[1:] != slices[:-1]])
    lengths = np.diff(np.r_[starts, count])
    kept[starts[lengths > 1]] = False
    return kept


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
