"""What a mapping may know of the place where its node stands, and how mappings are collected.

A mapping is a builder: from a `Site` to a callable of tensors by position (None for an input
that is left out), which returns a tensor, or a tuple of them where the node has several outputs.
Everything that does not depend on the tensors' values is decided in the builder, once; only
TensorFlow's own functions are left in the callable.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from matrix_adapters.adapter import Unsupported
from matrix_adapters.protocol import Node

Call = Callable[..., Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """One tensor as TensorFlow knows it before any value is there; None: not known."""

    dtype: str  # "float32", "bfloat16", "bool", ...
    shape: tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A node, what goes into it, and the framework's module.

    `inputs` has None where an optional input is left out; `values` has an input's value where it
    is known before the first call (a constant, or a parameter such as axes). `channels_last`:
    the data come as N, spatial..., C and the filters as spatial..., in, out.
    """

    tf: Any
    node: Node
    opset: int
    inputs: tuple[Facts | None, ...]
    value_of: Callable[[str], np.ndarray | None]
    channels_last: bool = False
    xla: bool = False

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.node.attributes.get(name, default)

    def real(self, name: str, default: float) -> float:
        """An attribute that is a float: ONNX stores it, and its default, in 32 bits."""
        return single(self.node.attributes.get(name, default))

    def ints(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        return tuple(int(n) for n in self.node.attributes.get(name, default))

    def has(self, index: int) -> bool:
        """Whether this input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Whether anybody asked for this output."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def dtype(self, index: int = 0) -> str:
        """TensorFlow's name of an input's type."""
        return self._facts(index).dtype

    def rank(self, index: int = 0) -> int:
        """How many dimensions an input has. Raises Unsupported where that depends on the data."""
        shape = self._facts(index).shape
        if shape is None:
            raise self.refusal(f"the rank of input {self.node.inputs[index]!r} depends on the data")
        return len(shape)

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """An input's dimensions. Raises Unsupported where one of them depends on the data."""
        known = self._facts(index).shape
        if known is None or None in known:
            raise self.refusal(f"the shape of input {self.node.inputs[index]!r} depends on the data")
        return tuple(n for n in known if n is not None)

    def axis(self, value: int, index: int = 0) -> int:
        """A possibly negative axis of an input, counted from the front."""
        return int(value) + self.rank(index) if value < 0 else int(value)

    def parameter(self, index: int) -> np.ndarray | None:
        """The value of an input that shapes the computation; None where it is left out.

        Raises Unsupported where another node computes it: TensorFlow wants it beforehand.
        """
        if not self.has(index):
            return None
        value = self.value_of(self.node.inputs[index])
        if value is None:
            raise self.refusal(f"input {self.node.inputs[index]!r} has to be known before the call")
        return value

    def integers(self, index: int) -> tuple[int, ...] | None:
        """The same as plain integers."""
        value = self.parameter(index)
        return None if value is None else tuple(int(n) for n in value.reshape(-1))

    def refusal(self, text: str) -> Unsupported:
        """The exception that says what this mapping does not do."""
        return Unsupported(f"{self.node.op}: {text}")

    def _facts(self, index: int) -> Facts:
        facts = self.inputs[index] if index < len(self.inputs) else None
        if facts is None:
            raise self.refusal(f"input {index} is missing")
        return facts


def single(value: float | str) -> float:
    """A number, or "nan", "inf", "-inf", as an ONNX file keeps it: in 32 bits."""
    return float(np.float32(value))


Builder = Callable[[Site], Call]


@dataclasses.dataclass(frozen=True, slots=True)
class Mapping:
    """A builder, and the attributes that it takes into account: any other one is refused.

    `plain`: what it builds is a function of TensorFlow itself, which takes host arrays too.
    """

    builder: Builder
    attributes: frozenset[str]
    plain: bool = False

    def build(self, site: Site) -> Call:
        """The callable for one node. Raises Unsupported for what this mapping does not do."""
        for name in site.node.attributes:
            if name not in self.attributes:
                raise site.refusal(f"no mapping of attribute {name!r}")
        return self.builder(site)


class Table(dict[str, Mapping]):
    """ONNX operator -> mapping. Families fill theirs by decorator."""

    def add(self, *operators: str, attributes: str = "") -> Callable[[Builder], Builder]:
        """Enter the decorated builder for these operators; `attributes` are the words it reads."""

        def enter(builder: Builder) -> Builder:
            for name in operators:
                self[name] = Mapping(builder, frozenset(attributes.split()))
            return builder

        return enter

    def plain(self, **paths: str) -> None:
        """Operators that are one TensorFlow function of the same arguments: `Erf="math.erf"`."""
        for name, path in paths.items():
            self[name] = Mapping(_found(path), frozenset(), plain=True)


def _found(path: str) -> Builder:
    find = operator.attrgetter(path)

    def build(site: Site) -> Call:
        found: Call = find(site.tf)
        return found

    return build
