"""How far from the exact answer an operator's output may be: the rows of `operators:` in tolerances.yaml.

A row is a kind of operator; a kind has one limit per dtype. With `u` the dtype's unit
roundoff (half the distance from 1 to the next number), `ulp(y)` the distance between the
numbers of the dtype around the exact answer y, and K the depth (terms of a reduction, inner
dimension of a product), the limit on |got - y| at each element is, by `formula`:

- `exact`: 0 from the exact answer rounded to the dtype, the sign of zero included;
- `ulps`: ulps * ulp(y);
- `floor`: ulps * ulp(y) + absolute, for answers that are small differences of larger ones;
- `depth`: ulps * ulp(y) + scaled * growth(K) * u * scale, where `scale` is the largest |y| of the
  output, or the sum of absolute products where the caller knows it;
- `allclose`: absolute + relative * |y|, as `numpy.allclose` has it, for tests that others wrote.

`growth` is `one` (wide accumulators: only the result is rounded), `log2` (pairwise sums:
Castaldo, Whaley and Chronopoulos 2008), `sqrt` (rounding errors of random sign: Higham and
Mary 2019, probabilistic error analysis) or `linear` (the worst case, gamma_K: Higham 2002,
section 3.1).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Amount = Annotated[float, Field(ge=0)]
Formula = Literal["exact", "ulps", "floor", "depth", "allclose"]
Growth = Literal["one", "log2", "sqrt", "linear"]

#: what each formula is made of; the other numbers have no meaning in it
_PARTS: dict[Formula, frozenset[str]] = {
    "exact": frozenset(),
    "ulps": frozenset({"ulps"}),
    "floor": frozenset({"ulps", "absolute"}),
    "depth": frozenset({"ulps", "scaled", "growth"}),
    "allclose": frozenset({"absolute", "relative"}),
}


_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class OperatorLimit(BaseModel):
    """The numbers of one kind in one dtype."""

    model_config = _STRICT

    ulps: Amount = 0  # of the dtype, at the exact answer
    absolute: Amount = 0  # in the output's own unit
    relative: Amount = 0  # of the exact answer
    scaled: Amount = 0  # in unit roundoffs of the largest answer, times the growth
    growth: Growth = "one"

    def growth_at(self, depth: int) -> float:
        """How much `depth` terms multiply the error of one; 1 for a single term."""
        depth = max(depth, 1)
        if self.growth == "sqrt":
            return math.sqrt(depth)
        if self.growth == "log2":
            return 1 + math.ceil(math.log2(depth))
        return float(depth) if self.growth == "linear" else 1.0


class OperatorRule(BaseModel):
    """One kind of operator: a formula, its numbers by dtype, and where they come from.

    `flush`: a difference below four times the smallest normal number passes, with a note, as
    subnormal numbers may be flushed to zero, in the answer or on the way to it (float32, bfloat16
    and float64; float16 has too few normal numbers for that).
    """

    model_config = _STRICT

    formula: Formula
    dtypes: dict[str, OperatorLimit] = {}
    flush: bool = True
    source: Annotated[str, Field(min_length=1)]

    def limit(self, dtype: str) -> OperatorLimit | None:
        """The numbers for a floating-point dtype; None where the table has none."""
        return OperatorLimit() if self.formula == "exact" else self.dtypes.get(dtype)

    @model_validator(mode="after")
    def _consistent(self) -> OperatorRule:
        if (self.formula == "exact") != (not self.dtypes):
            raise ValueError("every formula but `exact` needs numbers under `dtypes`, and `exact` has none")
        for dtype, limit in self.dtypes.items():
            strange = sorted(limit.model_fields_set - _PARTS[self.formula])
            if strange:
                raise ValueError(f"dtypes.{dtype}.{strange[0]}: no part of formula `{self.formula}`")
            if not limit.ulps and self.formula != "allclose":
                raise ValueError(f"dtypes.{dtype}.ulps: needed: the exact answer itself has to be rounded")
        return self
