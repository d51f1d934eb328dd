"""Element types of operator cases: ONNX's words, and how NumPy keeps each of them in a file.

NumPy has no bfloat16, so such a tensor is kept as its bits, uint16 of the same shape. All
else is kept as itself. Standard library and NumPy only.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

BFLOAT16 = "bfloat16"

#: types whose NumPy dtype has the same name
_PLAIN = frozenset(
    [
        "float64",
        "float32",
        "float16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class FloatLimits:
    """The numbers at the edges of a binary floating-point type, as float64."""

    max: float
    min_normal: float
    min_subnormal: float


_LIMITS = {
    "float64": FloatLimits(float(np.finfo(np.float64).max), 2.0**-1022, 2.0**-1074),
    "float32": FloatLimits(float(np.finfo(np.float32).max), 2.0**-126, 2.0**-149),
    "float16": FloatLimits(65504.0, 2.0**-14, 2.0**-24),
    BFLOAT16: FloatLimits((2 - 2.0**-7) * 2.0**127, 2.0**-126, 2.0**-133),
}


def storage(dtype: str) -> np.dtype[np.generic]:
    """The NumPy dtype in which a tensor of `dtype` lies in a file. Raises ValueError for an unknown word."""
    if dtype == BFLOAT16:
        return np.dtype(np.uint16)
    if dtype not in _PLAIN:
        raise ValueError(f"no way to keep a tensor of {dtype!r}: known are {', '.join(sorted(known()))}")
    return np.dtype(dtype)


def known() -> frozenset[str]:
    """Every word that `storage` takes."""
    return _PLAIN | {BFLOAT16}


def is_float(dtype: str) -> bool:
    return dtype in _LIMITS


def limits(dtype: str) -> FloatLimits:
    """Raises KeyError unless `is_float`."""
    return _LIMITS[dtype]


def to_bits(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """float32 -> the bits of the nearest bfloat16, ties to even, as IEEE 754 rounds. NaN stays NaN.

    A bfloat16 is the upper half of a float32: adding half of the last kept place (less one when
    that place is even) carries exactly where rounding up is due, into infinity too.
    """
    single = np.asarray(values, np.float32)
    bits = np.ascontiguousarray(single).view(np.uint32).reshape(single.shape)
    rounded = ((bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    quiet = ((bits >> 16) | 0x40).astype(np.uint16)
    return np.where(np.isnan(single), quiet, rounded)


def from_bits(bits: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """bfloat16 bits -> the same numbers as float32; exact."""
    wide = np.asarray(bits, np.uint16).astype(np.uint32) << 16
    return np.ascontiguousarray(wide).view(np.float32).reshape(np.shape(bits))


def stored(values: npt.NDArray[np.generic], dtype: str) -> npt.NDArray[np.generic]:
    """`values` rounded to `dtype`, as they lie in a file; ValueError for what an integer type cannot hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == BFLOAT16:
            return to_bits(values.astype(np.float32))
        made = values.astype(storage(dtype))
    if not is_float(dtype) and not np.array_equal(made, values):
        raise ValueError(f"values that are no {dtype}: {values[made != values].ravel()[:3].tolist()}")
    return made


def widened(array: npt.NDArray[np.generic], dtype: str) -> npt.NDArray[np.generic]:
    """A stored tensor as numbers that NumPy can compute with: bfloat16 as float32, all else as it is."""
    return from_bits(array) if dtype == BFLOAT16 else array
