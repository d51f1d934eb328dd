"""How cases of the PyTorch mapping are written down: one line an operator with its tensors and attributes.

Data only: `cases()` yields `OperatorCase`s. Tensors are named a, b, c, ... in the operator's
order, outputs y0, y1, ...
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from typing import Any

from matrix_adapters.protocol import Node, OperatorCase, TensorSpec

FLOATS = ("float64", "float32", "float16", "bfloat16")
WIDE = ("float64", "float32")
INTEGERS = ("int32", "int64", "int8", "uint8")


@dataclasses.dataclass(frozen=True)
class Given:
    """A tensor: `dtype` None is the case's own."""

    shape: tuple[int, ...]
    dtype: str | None = None
    generator: str = "normal"
    options: tuple[tuple[str, Any], ...] = ()
    constant: bool = False
    layout: str = "contiguous"


def f(*shape: int, **more: Any) -> Given:
    return Given(shape, **more)


def between(low: float, high: float, *shape: int, dtype: str | None = None) -> Given:
    return Given(shape, dtype, "uniform", (("low", low), ("high", high)))


def ints(low: int, high: int, *shape: int, dtype: str = "int64") -> Given:
    return Given(shape, dtype, "integers", (("low", low), ("high", high)))


def bools(*shape: int) -> Given:
    return Given(shape, "bool", "bools")


def values(numbers: Any, dtype: str | None = "int64", *, constant: bool = False) -> Given:
    return Given(_shape(numbers), dtype, "values", (("values", numbers),), constant)


def fixed(numbers: Any, dtype: str | None = "int64") -> Given:
    return values(numbers, dtype, constant=True)


def _shape(numbers: Any) -> tuple[int, ...]:
    return (
        (len(numbers), *_shape(numbers[0]))
        if isinstance(numbers, list) and numbers
        else ((0,) if isinstance(numbers, list) else ())
    )


@dataclasses.dataclass(frozen=True)
class Entry:
    op: str
    inputs: Sequence[Given | None]
    dtypes: Sequence[str] = WIDE
    outputs: int | Sequence[bool] = 1
    opset: int = 22
    oracle: str = "float64"
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


def E(  # reads as a table below
    op: str,
    *inputs: Given | None,
    dtypes: Sequence[str] = WIDE,
    outputs: int | Sequence[bool] = 1,
    opset: int = 22,
    oracle: str = "float64",
    **attributes: Any,
) -> Entry:
    return Entry(op, inputs, dtypes, outputs, opset, oracle, attributes)


def exact(op: str, *inputs: Given | None, dtypes: Sequence[str] = ("int64",), **more: Any) -> Entry:
    """Types are the meaning: the oracle computes in them."""
    return E(op, *inputs, dtypes=dtypes, oracle="as-is", **more)


def as_case(entry: Entry, name: str, dtype: str) -> OperatorCase:
    specs, names = [], []
    for letter, given in zip(string.ascii_lowercase, entry.inputs, strict=False):
        names.append(letter if given else "")
        if given:
            specs.append(
                TensorSpec(
                    name=letter,
                    dtype=given.dtype or dtype,
                    shape=given.shape,
                    generator=given.generator,
                    options=dict(given.options),
                    layout=given.layout,
                    constant=given.constant,
                )
            )
    wanted = [True] * entry.outputs if isinstance(entry.outputs, int) else list(entry.outputs)
    outputs = [f"y{i}" if want else "" for i, want in enumerate(wanted)]
    node = Node(op=entry.op, inputs=tuple(names), outputs=tuple(outputs), attributes=entry.attributes)
    return OperatorCase(
        name=name,
        dtype=dtype,
        nodes=(node,),
        inputs=tuple(specs),
        outputs=tuple(o for o in outputs if o),
        opset=entry.opset,
        oracle=entry.oracle,
        seed=7,
    )
