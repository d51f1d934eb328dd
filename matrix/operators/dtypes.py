"""Types of tensors by ONNX's names, lower case: their size, and this tool's word for them.

No table of NumPy's: it has no bfloat16, and planning does not import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

#: a type that an operator can be tested in
Dtype = Literal[
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
]
DTYPES: tuple[str, ...] = get_args(Dtype)
FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})
#: bytes of one element
ITEM_BYTES: Mapping[str, int] = {
    name: int("".join(c for c in name if c.isdigit())) // 8 if name not in ("bool", "bfloat16") else 1
    for name in DTYPES
} | {"bfloat16": 2}
_WORDS = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def precision_of(dtype: str) -> str:
    """The word that workloads and selections use: fp32, bf16; integers and bool have their own name."""
    return _WORDS.get(dtype, dtype)


def dtype_of(precision: str) -> str:
    """The inverse of `precision_of`."""
    return next((dtype for dtype, word in _WORDS.items() if word == precision), precision)
