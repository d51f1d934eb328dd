"""False alarms as a budget: spent over the looks at one row, shared among all suspects.

Looking at growing data again and again and stopping when it looks bad alarms far too often.
Each look is given its part of the level in advance (Lan and DeMets, 1983, linear spending).
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from matrix.judge import distributions as dist

Floats = npt.NDArray[np.float64]

#: blocks at which rows are looked at; those whose blocks are cheap can afford the longer schedule
LOOKS = (4, 8, 16)
CHEAP_LOOKS = (6, 10, 15, 20, 30)
#: bounds of a suspect's confirming blocks
LEAST_CONFIRM, MOST_CONFIRM = 8, 30
_CONFIRM_POWER = 1.28  # 90 %
_GRID = 1201


@functools.lru_cache(maxsize=1024)
def nominal_levels(looks: tuple[int, ...], alpha: float, most: int) -> tuple[float, ...]:
    """One-sided p values that alarm at each look, so that alpha * n / most is spent by look n.

    `looks` are increasing numbers of blocks up to `most`. By recursive integration of the
    density of the sum of blocks that did not alarm yet (Armitage, McPherson and Rowe, 1969).
    """
    levels: list[float] = []
    grid, density = np.zeros(1), np.ones(1)  # of the sum so far, on the points it is kept at
    weights, before, spent = np.ones(1), 0, 0.0
    for n in looks:
        step = math.sqrt(n - before)
        part = density * weights
        wanted = min(alpha * n / most, alpha) - spent
        bound = _bound(grid, part, step, wanted, n)
        levels.append(float(dist.normal_below(-bound / math.sqrt(n))))
        new = np.linspace(-9.0 * math.sqrt(n), bound, _GRID)
        kernel = np.exp(-0.5 * ((new[:, None] - grid[None, :]) / step) ** 2) / (step * math.sqrt(2 * math.pi))
        density, grid, before, spent = kernel @ part, new, n, spent + wanted
        weights = _simpson(new)
    return tuple(levels)


def _bound(grid: Floats, part: Floats, step: float, wanted: float, n: int) -> float:
    """The sum that is passed with probability `wanted`, by bisection."""
    low, high = -9.0 * math.sqrt(n), 12.0 * math.sqrt(n)
    for _ in range(80):
        middle = (low + high) / 2
        passed = float(part @ dist.normal_below((grid - middle) / step))
        low, high = (middle, high) if passed > wanted else (low, middle)
    return (low + high) / 2


def _simpson(points: Floats) -> Floats:
    weights = np.full(len(points), 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return np.asarray(weights * (points[1] - points[0]) / 3.0)


def confirm_blocks(s: float, effect: float, se: float, suspects: int, alpha: float) -> int:
    """Fresh blocks to judge a suspect by, so that 90 % of real ones are confirmed.

    `s` is the standard deviation of a block, `effect` > 0 the effect that made it a suspect
    (in its direction) with its standard error `se`; one of those is taken off against
    having chosen the largest. `suspects` share `alpha` (Holm's first step).
    """
    careful = effect - se
    sizes = np.arange(LEAST_CONFIRM, MOST_CONFIRM + 1)
    level = min(alpha / 2, alpha / max(suspects, 1))
    enough = (dist.t_quantile(1 - level, sizes - 1) + _CONFIRM_POWER) * s <= careful * np.sqrt(sizes)
    return int(sizes[np.argmax(enough)]) if enough.any() else MOST_CONFIRM


def holm(p: npt.ArrayLike) -> Floats:
    """Holm's adjusted p values, float64[n]: those at most alpha hold together with error alpha."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    count = len(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(count, 0, -1)) if count else values
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
