"""One floating-point output against the exact answer: non-finite values first, then the error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from matrix.judge.operators.compared import Compared
from matrix.judge.operators.formats import Floats, Format, decoded
from matrix.judge.operators.limits import MAX, Limits
from matrix.judge.operators.outcome import Outcome
from matrix.judge.operators.pieces import pieces
from matrix.judge.operators.tally import Tally

#: formats with fewer exponents lose too much when subnormal numbers become zero
_WIDE_RANGE = -100
#: by how many smallest normal numbers an answer may be off where subnormal ones are flushed on the way to it
_UNDERFLOW = 4


def judge_floats(
    name: str, got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic], held_to: Limits
) -> Outcome:
    """`wanted` is exact (float64). A finite answer beyond the format's range means infinity.

    The arrays are gone over twice in pieces: limits scale with the largest answer of all.
    """
    form = held_to.form
    size = max((_largest(form, exact) for _, (exact,) in pieces(wanted)), default=0.0)
    tally = Tally(name, wanted.shape, held_to, size)
    for begin, (values, exact) in pieces(got, wanted):
        tally.add(
            begin, _compare(values, exact, held_to.piece(begin, begin + exact.size, wanted.shape), size)
        )
    return tally.outcome()


def _largest(form: Format, exact: npt.NDArray[np.generic]) -> float:
    """The largest finite magnitude, as the format has it."""
    near = form.rounded(exact.astype(np.float64))
    return float(np.max(np.abs(near), where=np.isfinite(near), initial=0.0))


def _compare(
    got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic], held_to: Limits, size: float
) -> Compared:
    form = held_to.form
    values, exact = decoded(got, form.name), wanted.astype(np.float64)
    near = form.rounded(exact)
    ulp = form.last_place(np.where(np.isnan(near), 0.0, near))
    error = _errors(values, near if held_to.exact else exact, form)
    limits = held_to.at(ulp, size, near)
    underflow = None
    if held_to.rule.flush and not held_to.exact and form.least < _WIDE_RANGE:
        underflow = (error > limits) & (error < _UNDERFLOW * form.smallest_normal)
        error = np.where(underflow, 0.0, error)
    return Compared(
        got=values, exact=exact, near=near, error=error, limits=limits, ulp=ulp, underflow=underflow
    )


def _errors(values: Floats, target: Floats, form: Format) -> Floats:
    """|got - exact|; an infinity counts as the first number that rounds to it. inf: no tolerance helps."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(values - target)
        over = np.isinf(values) & np.isfinite(target) & (np.signbit(values) == np.signbit(target))
        error = np.where(over, form.beyond(np.where(over, target, 0.0)), error)
    same = (np.isnan(values) & np.isnan(target)) | (values == target)  # inf - inf is NaN
    both = np.isfinite(values) & np.isfinite(target)
    error = np.where(both, np.minimum(error, MAX), np.where(np.isnan(error), np.inf, error))
    return np.where(same, 0.0, error)
