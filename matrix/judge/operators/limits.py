"""What one output is held to: a row's numbers for its format, and what they scale with."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix.catalog.operator_rules import OperatorLimit, OperatorRule
from matrix.judge.operators.formats import Floats, Format
from matrix.judge.operators.verdict import Unit

MAX = sys.float_info.max


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The rule for one output."""

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

    def piece(self, begin: int, end: int, shape: tuple[int, ...]) -> Limits:
        """The same for these elements of an output of `shape`, in C order."""
        if self.scale is None:
            return self
        part = np.broadcast_to(np.asarray(self.scale), shape).flat[begin:end]
        return dataclasses.replace(self, scale=part)

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
        return np.minimum(limits, MAX)
