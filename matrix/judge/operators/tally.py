"""What is kept of one floating-point output while it is gone over in pieces, and what it comes to."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from matrix.judge.operators.compared import Compared
from matrix.judge.operators.limits import MAX, Limits
from matrix.judge.operators.outcome import Failure, Outcome, count, first, number, place
from matrix.judge.operators.verdict import Note, OutputError

Mask = npt.NDArray[np.bool_]


class Tally:
    """Counts, firsts and worsts over the pieces of one output. `size`: the largest finite |exact|."""

    def __init__(self, name: str, shape: tuple[int, ...], held_to: Limits, size: float) -> None:
        self._name, self._shape, self._held_to, self._size = name, shape, held_to, size
        self._elements = math.prod(shape)
        self._wrong = 0
        self._largest = self._most_ulps = 0.0
        self._non_finite = _Places()
        self._signs = _Places()  # zeros of the other sign
        self._underflow = 0
        self._worst: _Worst | None = None

    def add(self, begin: int, one: Compared) -> None:
        """Take in a piece whose first element is element `begin` of the output."""
        if not one.error.size:
            return
        beyond = one.error > one.limits
        self._wrong += int(np.count_nonzero(beyond))
        self._non_finite.add(begin, (~np.isfinite(one.got) | ~np.isfinite(one.near)) & beyond, one)
        zeros = (one.got == 0) & (one.exact == 0) & (np.signbit(one.got) != np.signbit(one.exact))
        self._signs.add(begin, zeros, one)
        if one.underflow is not None:
            self._underflow += int(np.count_nonzero(one.underflow))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ulps = np.minimum(one.error / one.ulp, MAX)
        self._largest = max(self._largest, float(one.error.max()))
        self._most_ulps = max(self._most_ulps, float(ulps.max()))
        worst = _worst(begin, one, ulps)
        if self._worst is None or worst.key > self._worst.key:
            self._worst = worst

    def outcome(self) -> Outcome:
        """The verdict on the output."""
        rule = str(self._held_to)
        if self._non_finite.count:
            return Outcome(rule=rule, failure=self._not_finite())
        measured, failure, notes = self._measured(), None, []
        if measured.wrong:
            failure = _beyond(measured)
        elif self._signs.count:
            at = place(self._name, self._signs.at, self._shape)
            text = f"{self._some(self._signs.count)}: a zero of the other sign, first at {at}"
            if self._held_to.exact:
                failure = Failure("signed_zero", text)
            else:
                notes.append(Note(code="signed_zero", text=text))
        if self._underflow:
            text = f"{self._some(self._underflow)}: off by a subnormal number or little more"
            notes.append(Note(code="underflow", text=text))
        return Outcome(rule=rule, failure=failure, error=measured, notes=tuple(notes))

    def _not_finite(self) -> Failure:
        """NaN and infinity must be where they belong, and nowhere else."""
        found, form = self._non_finite, self._held_to.form
        got, exact = found.got, found.exact
        at, all_of_them = place(self._name, found.at, self._shape), count(found.count, self._elements)
        ends = f"{form.name} ends at {form.largest:.6g}"
        if math.isnan(exact):
            text = f"{at} is {number(got, 9)} where the answer is NaN: the NaN was swallowed"
        elif math.isfinite(got):
            text = f"{at} is {number(got, 9)} where the answer is {number(found.near, 9)}"
            text += f" ({number(exact, 9)}, and {ends})" if math.isfinite(exact) else ""
        else:
            text = f"non-finite output in {form.name}: {at} is {number(got, 9)}"
            text += f" where the answer is {number(exact, 9)}"
            text += f" ({ends})" if math.isinf(got) and math.isfinite(exact) else ""
        return Failure("non_finite", f"{text}; {all_of_them} in all")

    def _measured(self) -> OutputError:
        """The error in all units, and its worst element: the largest error over the limit."""
        held_to, form, worst = self._held_to, self._held_to.form, self._worst
        if worst is None:
            return OutputError.nothing(self._name, form.name, held_to.limit.ulps, held_to.unit)
        digits = math.ceil(form.precision * math.log10(2)) + 1  # tell neighbours of the format apart
        got, exact = number(worst.got, digits), number(worst.exact, max(digits, 9))
        in_ulps = held_to.unit == "ulp"
        return OutputError(
            name=self._name,
            dtype=form.name,
            elements=self._elements,
            wrong=self._wrong,
            max_error=self._largest,
            max_scaled_error=min(self._largest / self._size, MAX) if self._size else self._largest,
            max_ulps=self._most_ulps,
            share=None if math.isinf(worst.share) else min(worst.share, MAX),
            limit=held_to.limit.ulps if in_ulps else worst.limit,
            least=self._most_ulps if in_ulps else worst.error,
            unit=held_to.unit,
            worst=f"{place(self._name, worst.at, self._shape)}: got {got}, exact {exact}",
        )

    def _some(self, many: int) -> str:
        return f"{count(many, self._elements)} of {self._name}"


class _Places:
    """How many elements are so, and the first of them with its values."""

    def __init__(self) -> None:
        self.count = self.at = 0
        self.got = self.exact = self.near = 0.0

    def add(self, begin: int, mask: Mask, one: Compared) -> None:
        many = int(np.count_nonzero(mask))
        if many and not self.count:
            where = first(mask)
            self.at = begin + where
            self.got, self.exact, self.near = (float(a[where]) for a in (one.got, one.exact, one.near))
        self.count += many


class _Worst:
    """The element with the largest error over its limit; among those with a limit of 0, in ULPs."""

    def __init__(self, begin: int, where: int, share: float, ulps: float, one: Compared) -> None:
        self.at, self.share = begin + where, share
        self.key = (share, ulps if math.isinf(share) else 0.0)
        self.got, self.exact, self.error, self.limit = (
            float(a[where]) for a in (one.got, one.exact, one.error, one.limits)
        )


def _worst(begin: int, one: Compared, ulps: npt.NDArray[np.float64]) -> _Worst:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(one.error == 0, 0.0, one.error / one.limits)
    where = int(np.argmax(share))
    if math.isinf(float(share[where])):  # any error where the limit is 0
        where = int(np.argmax(np.where(np.isinf(share), ulps, -1.0)))
    return _Worst(begin, where, float(share[where]), float(ulps[where]), one)


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
