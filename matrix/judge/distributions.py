"""The distributions that a verdict needs: SciPy's, loaded when first used.

Loading SciPy costs a quarter of a second, which `matrix --help` and `matrix run` need not pay.
All functions take and return float64 arrays or scalars alike, and broadcast.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@functools.cache
def _special() -> Any:
    import scipy.special

    return scipy.special


def t_below(t: npt.ArrayLike, df: npt.ArrayLike) -> Floats:
    """P(T <= t) of Student's t; accurate far out in the lower tail."""
    return np.asarray(_special().stdtr(df, t))


def t_quantile(p: npt.ArrayLike, df: npt.ArrayLike) -> Floats:
    """The t that P(T <= t) = p belongs to."""
    return np.asarray(_special().stdtrit(df, p))


def normal_below(z: npt.ArrayLike) -> Floats:
    """P(Z <= z) of the standard normal distribution."""
    return np.asarray(_special().ndtr(z))


def normal_quantile(p: npt.ArrayLike) -> Floats:
    """The z that P(Z <= z) = p belongs to."""
    return np.asarray(_special().ndtri(p))


def f_quantile(p: float, df: npt.ArrayLike, df_below: npt.ArrayLike) -> Floats:
    """Quantile of the F distribution with `df` over `df_below` degrees of freedom."""
    return np.asarray(_special().fdtri(df, df_below, p))


def chi2_quantile(p: float, df: float) -> float:
    """Quantile of the chi-square distribution."""
    return float(_special().chdtri(df, 1 - p))


def binomial_at_least(count: int, n: int, p: float) -> float:
    """P(X >= count) of n trials with probability p each."""
    return 1.0 if count <= 0 else float(_special().bdtrc(count - 1, n, p))


def digamma(x: npt.ArrayLike) -> Floats:
    """The logarithmic derivative of the gamma function."""
    return np.asarray(_special().digamma(x))


def trigamma(x: npt.ArrayLike) -> Floats:
    """The derivative of `digamma`."""
    return np.asarray(_special().polygamma(1, x))


def trigamma_inverse(y: float) -> float:
    """The x > 0 with trigamma(x) = y > 0, by Newton's method on 1/trigamma, which is nearly linear."""
    x = 0.5 + 1.0 / y
    for _ in range(50):
        value = float(trigamma(x))
        step = value * (1 - value / y) / float(_special().polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x
