"""What is known of one operator case after judging it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from matrix.records import Parity

Unit = Literal["ulp", "absolute"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Something worth saying about an output that passes: a code for scripts, a sentence for people."""

    code: str  # signed_zero | underflow
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OutputError:
    """How far one output is from the exact answer. Every number is finite.

    `share` is the largest error over the limit at its element: 1 is the limit itself; None where
    the limit is 0 and the output is not exact.
    """

    name: str
    dtype: str
    elements: int
    wrong: int  # elements beyond the limit
    max_error: float  # in the output's own unit
    max_scaled_error: float  # over the largest exact answer
    max_ulps: float | None  # of the dtype; None for integers and booleans
    share: float | None
    limit: float  # at the worst element, in `unit`
    least: float  # the smallest limit that would pass, in `unit`
    unit: Unit
    worst: str  # "Y[0, 3]: got 0.25, exact 0.5"

    @classmethod
    def nothing(cls, name: str, dtype: str, limit: float, unit: Unit) -> OutputError:
        """Of a tensor without elements, whose shape and dtype are all there is to be right or wrong."""
        return cls(
            name=name,
            dtype=dtype,
            elements=0,
            wrong=0,
            max_error=0.0,
            max_scaled_error=0.0,
            max_ulps=0.0,
            share=0.0,
            limit=limit,
            least=0.0,
            unit=unit,
            worst="",
        )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OperatorVerdict:
    """The answer for one case, with the rule that decided; `failure` names what failed first."""

    passed: bool
    rule: str
    failure: str = ""
    failure_code: str = (
        ""  # outputs | shape | dtype | non_finite | signed_zero | wrapped | values | tolerance
    )
    outputs: tuple[OutputError, ...] = ()  # those whose values could be compared
    notes: tuple[Note, ...] = ()

    @property
    def worst(self) -> OutputError | None:
        """The output that is furthest beyond, or nearest to, its limit."""
        return max(self.outputs, key=_badness, default=None)

    @property
    def max_ulps(self) -> float | None:
        return max((o.max_ulps for o in self.outputs if o.max_ulps is not None), default=None)

    def parity(self, reference: str) -> Parity:
        """As a run's record keeps it; `reference` says what the outputs were held against."""
        worst = self.worst
        return Parity(
            reference=reference,
            passed=self.passed,
            rule=self.rule,
            failure=self.failure,
            failure_code=self.failure_code,
            max_ulps=self.max_ulps,
            max_scaled_error=max((o.max_scaled_error for o in self.outputs), default=None),
            limit=worst.limit if worst else None,
            least_passing=worst.least if worst else None,
            unit=worst.unit if worst else "",
            worst=worst.worst if worst else "",
        )


def _badness(one: OutputError) -> tuple[bool, float, float]:
    return one.share is None, one.share or 0.0, one.max_ulps or 0.0
