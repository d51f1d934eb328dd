"""The numbers at every element of a piece of one output."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from matrix.judge.operators.formats import Floats


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """All in float64 and of one length."""

    got: Floats
    exact: Floats  # unrounded
    near: Floats  # rounded to the format
    error: Floats  # inf where no tolerance helps
    limits: Floats
    ulp: Floats
    underflow: npt.NDArray[np.bool_] | None  # forgiven: as if subnormal numbers were flushed to zero
