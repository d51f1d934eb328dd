"""Tests on paired log ratios: one value a block, positive where the candidate is worse.

The block is the sample. Iterations of one process depend on each other, so a mean over them
has a variance that they cannot tell; what differs between fresh processes is what counts.

Everything is exactly antisymmetric and independent of order, to the last bit: sums are rounded
once (`math.fsum`), and negated values give negated means and intervals.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from matrix.judge import distributions as dist

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: of each bound of the 95 % interval
TAIL = 0.025
#: of the smallest slowdown that counts as detectable
POWER = 0.8
#: a prior counts at most for so many degrees of freedom, and needs so many rows
MOST_PRIOR_DF, LEAST_PRIOR_ROWS = 8.0, 10
#: beyond this quantile a row is not one of its family, and keeps its own variance
GUARD = 0.95
_ZERO_RELATIVE = 1e-12
_EXACT_FLIPS = 12
#: what t asks for beyond the normal distribution is less
_MOST_STEPS = 20
_RANDOM_FLIPS = 2048


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample variance (0 for a single value)."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, 0.0
    return mean, math.fsum([(x - mean) ** 2 for x in values]) / (n - 1)


@dataclasses.dataclass(frozen=True)
class Prior:
    """What a family knows of its rows' variance: `variance`, worth `df` degrees of freedom (0: nothing)."""

    df: float = 0.0
    variance: float = 0.0


def prior(variances: Floats, df: Floats) -> Prior:
    """The prior of rows of one kind, from their sample variances and degrees of freedom, float64[g].

    Smyth (2004), moments of log s^2. It counts for at most 8 degrees of freedom, so that a row
    unlike the others is not judged by them. Nothing is known from fewer than 10 rows; rows
    without any variance (a deterministic value) are another population and say nothing.
    """
    random = (variances > 0) & (df > 0)
    s2, f = variances[random], df[random]
    count = len(s2)
    if count < LEAST_PRIOR_ROWS:
        return Prior()
    e = np.log(s2) - dist.digamma(f / 2) + np.log(f / 2)
    mean = math.fsum(e.tolist()) / count
    excess = math.fsum(((e - mean) ** 2).tolist()) / (count - 1) - math.fsum(
        dist.trigamma(f / 2).tolist()
    ) / len(f)
    if excess <= 0:
        return Prior(MOST_PRIOR_DF, math.exp(mean))
    d0 = 2 * dist.trigamma_inverse(excess)
    shift = float(dist.digamma(d0 / 2)) - math.log(d0 / 2)
    return Prior(min(d0, MOST_PRIOR_DF), math.exp(mean + shift))


@dataclasses.dataclass(frozen=True)
class Tested:
    """What the blocks of many rows say: float64[rows] each, logarithms of ratios where not probabilities.

    `within_above`: certified to be worse by less than the margin, at the level asked for, by a
    measurement that could have seen the margin; `within_below` the same for better.
    """

    n: Floats
    delta: Floats
    s: Floats  # moderated standard deviation of a block
    se: Floats
    nu: Floats  # degrees of freedom
    margin: Floats
    low: Floats
    high: Floats
    mde: Floats
    p_worse: Floats
    p_better: Floats
    p_no_worse: Floats
    p_no_better: Floats

    @property
    def precise(self) -> Bools:
        """Whether a change of the margin's size would have been found in 80 % of cases."""
        return np.asarray(self.mde <= self.margin)

    def within_above(self, level: float = TAIL) -> Bools:
        return np.asarray((self.p_no_worse <= level) & self.precise)

    def within_below(self, level: float = TAIL) -> Bools:
        return np.asarray((self.p_no_better <= level) & self.precise)

    def z(self) -> Floats:
        """`delta / se` as a standard normal variable; 0 where there is neither."""
        worse = self.p_worse <= self.p_better
        size = -dist.normal_quantile(np.clip(np.minimum(self.p_worse, self.p_better), 1e-300, 0.5))
        return np.where(worse, size, -size)


def test(
    *, n: Floats, delta: Floats, variance: Floats, margin: Floats, prior_df: Floats, prior_variance: Floats
) -> Tested:
    """Paired t tests with moderated variance, all arguments float64[rows].

    `delta` is the mean and `variance` the sample variance of n >= 2 log ratios; `margin` =
    log(1 + minimum effect). Without any variance the mean is exact, and so is every answer.
    """
    s2, nu = moderated(variance, n - 1, prior_df, prior_variance)
    return _answer(n=n, delta=delta, s=np.sqrt(s2), se=np.sqrt(s2 / n), nu=nu, margin=margin)


def welch(base: Sequence[float], candidate: Sequence[float], margin: float) -> Tested:
    """The unpaired test of two sets of logarithms, two or more each (Welch; Satterthwaite's nu)."""
    (mean_b, var_b), (mean_c, var_c) = moments(base), moments(candidate)
    part_b, part_c = var_b / len(base), var_c / len(candidate)
    se2 = part_b + part_c
    below = part_b**2 / (len(base) - 1) + part_c**2 / (len(candidate) - 1)
    n = min(len(base), len(candidate))
    nu = se2**2 / below if below > 0 else float(n - 1)
    return _answer(
        n=np.array([float(n)]),
        delta=np.array([mean_c - mean_b]),
        s=np.array([math.sqrt(se2 * n)]),
        se=np.array([math.sqrt(se2)]),
        nu=np.array([nu]),
        margin=np.array([margin]),
    )


def moderated(
    variance: Floats, df: Floats, prior_df: Floats, prior_variance: Floats
) -> tuple[Floats, Floats]:
    """Variance and degrees of freedom after the family's prior had its say, float64[rows] each."""
    known = prior_df > 0
    limit = np.full_like(variance, np.inf)
    if known.any():
        limit[known] = prior_variance[known] * dist.f_quantile(GUARD, df[known], prior_df[known])
    joins = known & (variance <= limit)
    nu = np.where(joins, prior_df + df, df)
    return np.where(joins, (prior_df * prior_variance + df * variance) / np.maximum(nu, 1e-9), variance), nu


def _answer(*, n: Floats, delta: Floats, s: Floats, se: Floats, nu: Floats, margin: Floats) -> Tested:
    t = dist.t_quantile(1 - TAIL, nu)
    half = t * se
    return Tested(
        n=n,
        delta=delta,
        s=s,
        se=se,
        nu=nu,
        margin=margin,
        low=delta - half,
        high=delta + half,
        mde=(t + dist.t_quantile(POWER, nu)) * se,
        p_worse=_p_above(delta, se, nu),
        p_better=_p_above(-delta, se, nu),
        p_no_worse=_p_above(margin - delta, se, nu),
        p_no_better=_p_above(margin + delta, se, nu),
    )


def _p_above(distance: Floats, se: Floats, nu: Floats) -> Floats:
    """P(T >= distance / se); a distance that is exact is either above zero or not."""
    exact = se <= _ZERO_RELATIVE * np.abs(distance)
    t = distance / np.where(exact, 1.0, se)
    return np.where(exact, np.where(distance > 0, 0.0, 1.0), dist.t_below(-t, nu))


def needed_blocks(tested: Tested) -> npt.NDArray[np.int64]:
    """How many more blocks would probably decide each row, int64[rows], at least one.

    The smallest n with (t_.975 + t_.8) s / sqrt(n) <= gap, where the gap is what has to be told
    from nothing: the margin, or, once the effect is known well enough, its distance to zero or
    to the margin. Found from below: the normal distribution asks for a few blocks less.
    """
    z = float(dist.normal_quantile(1 - TAIL)) + float(dist.normal_quantile(POWER))
    gap = np.minimum(tested.margin, np.maximum(tested.delta, tested.margin - tested.delta))
    ratio = (tested.s / np.maximum(gap, 1e-6)) ** 2
    n = np.maximum(np.ceil(z**2 * ratio), 2.0)
    known = np.maximum(tested.nu - (tested.n - 1), 0.0)  # degrees of freedom that the family lends
    for _ in range(_MOST_STEPS):
        df = n - 1 + known
        quantiles = dist.t_quantile(1 - TAIL, df) + dist.t_quantile(POWER, df)
        short = quantiles**2 * ratio > n
        if not short.any():
            break
        n += short
    return np.asarray(np.clip(n - tested.n, 1, 1e9), dtype=np.int64)


def sign_flip(rows: Sequence[Sequence[float]]) -> list[float]:
    """P(mean >= observed) of each row when every block's sign is a coin flip: needs no distribution.

    Exact up to 12 blocks, else from 4,096 fixed random flips. It cannot go below 2^-n, so it
    stands beside a verdict and does not make it.
    """
    found = [1.0] * len(rows)
    by_size: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        by_size.setdefault(len(row), []).append(i)
    for n, members in by_size.items():
        if n == 0:
            continue
        for start in range(0, len(members), 1000):
            some = members[start : start + 1000]
            # sorted by size, so that the order of blocks does not choose the flips
            d = np.array([sorted(rows[i], key=lambda x: (abs(x), x)) for i in some])
            for i, p in zip(some, _flip(d).tolist(), strict=True):
                found[i] = p
    return found


def _flip(d: Floats) -> Floats:
    n = d.shape[1]
    sums = d @ _signs(n)
    slack = 1e-9 * np.abs(d).sum(axis=1, keepdims=True)
    observed = d.sum(axis=1, keepdims=True) - slack
    # every flip counts with its opposite
    count = (sums >= observed).sum(axis=1) + (-sums >= observed).sum(axis=1)
    if n <= _EXACT_FLIPS:
        return np.asarray(count / 2.0**n)
    return np.asarray((count + 1) / (2 * _RANDOM_FLIPS + 1))


@functools.lru_cache(maxsize=64)
def _signs(n: int) -> Floats:
    """Half of the sign vectors, float64[n, flips]; the others are their opposites."""
    if n <= _EXACT_FLIPS:
        bits = np.arange(2 ** (n - 1))[None, :] >> np.arange(n)[:, None] & 1
    else:
        bits = np.random.default_rng(n).integers(0, 2, (n, _RANDOM_FLIPS))
    return np.asarray(1.0 - 2.0 * bits)
