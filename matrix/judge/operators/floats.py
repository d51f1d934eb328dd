"""One floating-point output against the exact answer: non-finite values first, then the error."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix.catalog.operator_rules import OperatorLimit, OperatorRule
from matrix.judge.operators.formats import Floats, Format, decoded
from matrix.judge.operators.outcome import Failure, Outcome, count, first, number, place
from matrix.judge.operators.verdict import Note, OutputError, Unit

Mask = npt.NDArray[np.bool_]

#: formats with fewer exponents lose too much when subnormal numbers become zero
_WIDE_RANGE = -100
_MAX = sys.float_info.max
#: by how many smallest normal numbers an answer may be off where subnormal ones are flushed on the way to it
_UNDERFLOW = 4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one output is held to: a row's numbers for its format, and what they scale with."""

    form: Format
    rule: OperatorRule
    limit: OperatorLimit
    depth: int = 1
    scale: npt.NDArray[Any] | None = None  # sums of absolute products, in place of max|exact|

    def __str__(self) -> str:
        """The rule in words, with the numbers filled in."""
        if self.exact:
            return f"equal to the exact answer rounded to {self.form.name}"
        if self.rule.formula == "allclose":
            return f"error <= {self.limit.absolute:g} + {self.limit.relative:g} x |exact|"
        text = f"error <= {self.limit.ulps:g} ulp of {self.form.name}"
        if self.limit.absolute:
            text += f" + {self.limit.absolute:.3g}"
        if self.limit.scaled:
            grown = "" if self.limit.growth == "one" else f" x {self.limit.growth}({max(self.depth, 1)})"
            size = "max|exact|" if self.scale is None else "sum|terms|"
            text += f" + {self.limit.scaled:g}{grown} x {self.form.roundoff:.2g} x {size}"
        return text

    @property
    def exact(self) -> bool:
        return self.rule.formula == "exact"

    @property
    def unit(self) -> Unit:
        """In which one number says what would pass."""
        return "ulp" if self.rule.formula in ("exact", "ulps") else "absolute"

    def at(self, ulp: Floats, size: float, near: Floats) -> Floats:
        """The largest error allowed at each element, finite. `near`: the answer, rounded to the format."""
        limits = self.limit.ulps * ulp + self.limit.absolute
        if self.limit.relative:
            limits = limits + self.limit.relative * np.where(np.isfinite(near), np.abs(near), 0.0)
        if self.limit.scaled:
            factor = self.limit.scaled * self.limit.growth_at(self.depth) * self.form.roundoff
            given = size if self.scale is None else np.abs(self.scale)
            known = np.broadcast_to(np.asarray(given, np.float64), ulp.shape)
            limits = limits + factor * np.where(np.isfinite(known), known, size)
        return np.minimum(limits, _MAX)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """The numbers at every element of one output, all in float64 and of one shape."""

    name: str
    held_to: Limits
    got: Floats
    exact: Floats  # unrounded
    near: Floats  # rounded to the format
    error: Floats  # inf where no tolerance helps
    limits: Floats
    ulp: Floats
    size: float  # the largest finite |near|
    underflow: Mask | None  # forgiven: as if subnormal numbers were flushed to zero


def judge_floats(
    name: str, got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic], held_to: Limits
) -> Outcome:
    """`wanted` is exact (float64). A finite answer beyond the format's range means infinity."""
    one = _compare(name, got, wanted, held_to)
    failure = _non_finite(one)
    if failure:
        return Outcome(rule=str(held_to), failure=failure)
    measured = _measured(one)
    zeros = (one.got == 0) & (one.exact == 0) & (np.signbit(one.got) != np.signbit(one.exact))
    notes = []
    if measured.wrong:
        failure = _beyond(measured)
    elif zeros.any():
        at = place(name, first(zeros), zeros.shape)
        text = f"{_some(zeros)} of {name}: a zero of the other sign, first at {at}"
        if held_to.exact:
            failure = Failure("signed_zero", text)
        else:
            notes.append(Note(code="signed_zero", text=text))
    if one.underflow is not None and one.underflow.any():
        text = f"{_some(one.underflow)} of {name}: off by a subnormal number or little more"
        notes.append(Note(code="underflow", text=text))
    return Outcome(rule=str(held_to), failure=failure, error=measured, notes=tuple(notes))


def _compare(
    name: str, got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic], held_to: Limits
) -> _Compared:
    form = held_to.form
    values, exact = decoded(got, form.name), wanted.astype(np.float64)
    near = form.rounded(exact)
    ulp = form.last_place(np.where(np.isnan(near), 0.0, near))
    size = float(np.max(np.abs(near), where=np.isfinite(near), initial=0.0))
    error = _errors(values, near if held_to.exact else exact, form)
    limits = held_to.at(ulp, size, near)
    underflow = None
    if held_to.rule.flush and not held_to.exact and form.least < _WIDE_RANGE:
        underflow = (error > limits) & (error < _UNDERFLOW * form.smallest_normal)
        error = np.where(underflow, 0.0, error)
    return _Compared(
        name=name,
        held_to=held_to,
        got=values,
        exact=exact,
        near=near,
        error=error,
        limits=limits,
        ulp=ulp,
        size=size,
        underflow=underflow,
    )


def _errors(values: Floats, target: Floats, form: Format) -> Floats:
    """|got - exact|; an infinity counts as the first number that rounds to it. inf: no tolerance helps."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(values - target)
        over = np.isinf(values) & np.isfinite(target) & (np.signbit(values) == np.signbit(target))
        error = np.where(over, form.beyond(np.where(over, target, 0.0)), error)
    same = (np.isnan(values) & np.isnan(target)) | (values == target)  # inf - inf is NaN
    both = np.isfinite(values) & np.isfinite(target)
    error = np.where(both, np.minimum(error, _MAX), np.where(np.isnan(error), np.inf, error))
    return np.where(same, 0.0, error)


def _non_finite(one: _Compared) -> Failure | None:
    """NaN and infinity must be where they belong, and nowhere else."""
    wrong = (~np.isfinite(one.got) | ~np.isfinite(one.near)) & (one.error > one.limits)
    if not wrong.any():
        return None
    form, where = one.held_to.form, first(wrong)
    at, all_of_them = place(one.name, where, wrong.shape), count(int(wrong.sum()), wrong.size)
    got, exact = float(one.got.flat[where]), float(one.exact.flat[where])
    ends = f"{form.name} ends at {form.largest:.6g}"
    if math.isnan(exact):
        text = f"{at} is {number(got, 9)} where the answer is NaN: the NaN was swallowed"
    elif math.isfinite(got):
        text = f"{at} is {number(got, 9)} where the answer is {number(one.near.flat[where], 9)}"
        text += f" ({number(exact, 9)}, and {ends})" if math.isfinite(exact) else ""
    else:
        text = f"non-finite output in {form.name}: {at} is {number(got, 9)}"
        text += f" where the answer is {number(exact, 9)}"
        text += f" ({ends})" if math.isinf(got) and math.isfinite(exact) else ""
    return Failure("non_finite", f"{text}; {all_of_them} in all")


def _measured(one: _Compared) -> OutputError:
    """The error in all units, and its worst element: the largest error over the limit."""
    held_to, form, error = one.held_to, one.held_to.form, one.error
    if error.size == 0:
        return OutputError.nothing(one.name, form.name, held_to.limit.ulps, held_to.unit)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ulps = np.minimum(error / one.ulp, _MAX)
        share = np.where(error == 0, 0.0, error / one.limits)
    flat = int(np.argmax(share))
    hopeless = math.isinf(float(share.flat[flat]))  # any error where the limit is 0
    if hopeless:
        flat = int(np.argmax(np.where(np.isinf(share), ulps, -1.0)))
    largest, most_ulps = float(error.max()), float(ulps.max())
    digits = math.ceil(form.precision * math.log10(2)) + 1  # tell neighbours of the format apart
    got, exact = number(one.got.flat[flat], digits), number(one.exact.flat[flat], max(digits, 9))
    in_ulps = held_to.unit == "ulp"
    return OutputError(
        name=one.name,
        dtype=form.name,
        elements=error.size,
        wrong=int(np.count_nonzero(error > one.limits)),
        max_error=largest,
        max_scaled_error=min(largest / one.size, _MAX) if one.size else largest,
        max_ulps=most_ulps,
        share=None if hopeless else min(float(share.flat[flat]), _MAX),
        limit=held_to.limit.ulps if in_ulps else float(one.limits.flat[flat]),
        least=most_ulps if in_ulps else float(error.flat[flat]),
        unit=held_to.unit,
        worst=f"{place(one.name, flat, error.shape)}: got {got}, exact {exact}",
    )


def _beyond(measured: OutputError) -> Failure:
    """The error is beyond the limit: how far, where, and what would have passed."""
    ulps = measured.max_ulps or 0.0
    if measured.unit == "ulp":
        text = f"an error of {ulps:.4g} ulp is above {measured.limit:g}"
    else:
        text = f"an error of {measured.least:.3g} is above {measured.limit:.3g} ({ulps:.4g} ulp at most)"
    text += f" at {measured.worst}; {count(measured.wrong, measured.elements)} beyond"
    if measured.share is not None:
        text += f"; {measured.share:.3g} times the tolerance would pass"
    return Failure("values" if measured.share is None else "tolerance", text)


def _some(mask: Mask) -> str:
    return count(int(mask.sum()), mask.size)
