"""Floating-point formats as numbers: rounding to them, and the size of their last place, in float64.

NumPy has no bfloat16, and float64 -> float32 -> bfloat16 would round twice, so rounding is done
here by arithmetic: a number is brought to multiples of its own last place and rounded to even
(IEEE 754-2019, sections 3.3 and 4.3.1). All of it is exact for formats no wider than float64.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """A binary format: `precision` bits of significand, exponents from `least` to `most`."""

    name: str
    precision: int
    least: int  # exponent of the smallest normal number
    most: int  # exponent of the largest number

    @property
    def roundoff(self) -> float:
        """u: half the distance from 1 to the next number; the relative error of one rounding."""
        return 2.0**-self.precision

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.least

    @property
    def largest(self) -> float:
        return (2.0 - 2.0 ** (1 - self.precision)) * 2.0**self.most

    def last_place(self, exact: Floats) -> Floats:
        """ulp: the distance between the format's numbers around each value (infinity: as the largest).

        Zero and subnormal numbers have the smallest subnormal's.
        """
        magnitude = np.clip(np.abs(exact), self.smallest_normal, self.largest)
        _, exponent = np.frexp(magnitude)  # 1.0 is 0.5 * 2**1
        last: Floats = np.ldexp(1.0, exponent - self.precision)
        return last

    def rounded(self, exact: Floats) -> Floats:
        """Each value as the nearest number of the format, ties to even; beyond the range, infinity."""
        if self.precision == FLOAT64.precision:
            return exact
        finite = np.isfinite(exact)
        last = self.last_place(np.where(finite, exact, 0.0))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.where(finite, np.rint(exact / last) * last, exact)
        return np.where(np.abs(near) > self.largest, np.copysign(np.inf, near), near)

    def beyond(self, exact: Floats) -> Floats:
        """How far each finite value's magnitude is below the first that rounds to infinity; 0 above it."""
        threshold = self.largest + 2.0 ** (self.most - self.precision)  # inf for float64: it never is
        return np.maximum(threshold - np.abs(exact), 0.0)


FLOAT64 = Format("float64", 53, -1022, 1023)
FORMATS = {
    one.name: one
    for one in (
        FLOAT64,
        Format("float32", 24, -126, 127),
        Format("float16", 11, -14, 15),
        Format("bfloat16", 8, -126, 127),
    )
}


def decoded(array: npt.NDArray[np.generic], dtype: str) -> Floats:
    """The values of a float tensor as float64; bfloat16 may come as its bits (uint16) or widened."""
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def encoded(values: Floats, dtype: str) -> npt.NDArray[np.generic]:
    """The nearest numbers of a float dtype as a worker stores them (bfloat16: bits in uint16)."""
    rounded = FORMATS[dtype].rounded(np.asarray(values, dtype=np.float64))
    if dtype == "bfloat16":
        return (rounded.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return rounded.astype(np.dtype(dtype))
