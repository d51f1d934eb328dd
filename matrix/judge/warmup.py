"""What a pilot says of warming up: how many calls to throw away, and for how long to measure.

The answer is frozen before any block is measured and is the same on both sides: a warm-up
that is detected anew in every process depends on the process, and that biases a comparison.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: calls a batch of MSER-5; its median hides single interruptions
BATCH = 5
#: a trend smaller than this is not worth a warning
LEAST_TREND = 0.02
#: bounds of the time that one process is measured, seconds
LEAST_TAU_S, MOST_TAU_S = 0.5, 10.0
#: measuring time as a share of start-up where the variances are not known
TAU_SHARE = 0.25


def frozen_warmup(*pilots: npt.ArrayLike) -> int:
    """Calls to throw away in every block of every side: the most that any pilot process needs."""
    return max((mser5(pilot) for pilot in pilots), default=BATCH)


def mser5(series: npt.ArrayLike) -> int:
    """Calls to throw away from the beginning of one process's calls, at least one batch of 5.

    `series`: the duration of every call in any unit, float[n], positive. MSER-5 (White, Cobb
    and Spratt, 2000) on log durations: the cut d that minimises the squared standard error of
    the mean of what is left, sum((z - mean)^2) / (q - d)^2 over q batches, at most half of them.
    """
    z = _batches(series)
    q = len(z)
    if q < 2:
        return BATCH
    # sums over z[d:], for every d at once
    left = q - np.arange(q)
    total = np.cumsum(z[::-1])[::-1]
    squares = np.cumsum(z[::-1] ** 2)[::-1]
    spread = np.maximum(squares - total**2 / left, 0.0) / left**2
    best = int(np.argmin(spread[: q // 2 + 1]))
    return max(BATCH, BATCH * best)


def unsteadiness(series: npt.ArrayLike, warmup: int) -> str:
    """Why calls never became steady, in words; empty when they did, or there are too few to tell.

    The medians of the first and last third must agree within 2 % or three standard errors,
    after the warm-up, and also after the first third whatever the warm-up is: a slowdown in
    the middle would otherwise be cut off as if it were warming up.
    """
    values = np.asarray(series, dtype=np.float64)
    for start in sorted({min(warmup, len(values)), len(values) // 3}):
        change = _trend(_batches(values[start:]))
        if change is not None:
            return f"calls went on changing after {start} calls of warm-up: {math.expm1(change):+.1%}"
    return ""


def tau(start_s: float, call_s: float, series: npt.ArrayLike = (), *, between: float | None = None) -> float:
    """How long to measure in one process, in seconds, so that a total of time says most.

    `start_s` is what a process costs before its first sample (start-up and warm-up), `call_s`
    what a call costs. With the variance `between` processes of the log duration known:
    sqrt(start_s call_s g within / between), where g is the integrated autocorrelation of the
    calls in `series` (Kalibera and Jones, 2013, extended by g); without it a quarter of `start_s`.
    """
    values = np.asarray(series, dtype=np.float64)
    wanted = TAU_SHARE * start_s
    if between is not None and between > 0 and len(values) >= 4 * BATCH:
        # long batches' means are nearly independent: their variance times the length is g x within
        long = max(BATCH, math.isqrt(len(values)))
        means = np.log(values[: len(values) // long * long]).reshape(-1, long).mean(axis=1)
        wanted = math.sqrt(start_s * call_s * long * float(means.var(ddof=1)) / between)
    return min(max(wanted, LEAST_TAU_S), MOST_TAU_S, max(2.0, 0.4 * start_s))


def _batches(series: npt.ArrayLike) -> Floats:
    """Medians of the log durations of every 5 calls, float64[q]; what is left over is dropped."""
    values = np.asarray(series, dtype=np.float64)
    whole = len(values) // BATCH * BATCH
    medians: Floats = np.median(np.log(values[:whole]).reshape(-1, BATCH), axis=1)
    return medians


def _trend(z: Floats) -> float | None:
    """Change of the log duration between the thirds, where it is too large; else None."""
    third = len(z) // 3
    if third < 2:
        return None
    first, last = z[:third], z[-third:]
    change = float(np.median(last) - np.median(first))
    error = math.sqrt(math.pi / 2 * (first.var(ddof=1) + last.var(ddof=1)) / third)
    return change if abs(change) > max(LEAST_TREND, 3 * error) else None
