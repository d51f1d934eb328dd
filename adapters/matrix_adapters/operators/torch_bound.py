"""What a builder of the PyTorch mapping is told about one node: attributes, shapes, types, fixed values.

Everything that can be decided before a call is decided here, once: a builder reads attributes
and shapes and returns a callable that does nothing but compute. Attributes are ticked off when
read; one that nobody read is refused by name, so that a mapping cannot drop one in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators import elements
from matrix_adapters.protocol import Node

#: a callable of a library without types: native tensors in, one per input that is not static; None: left out
Kernel = Any

#: `TensorProto.DataType` of the ONNX specification -> our words
_ELEMENT_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
}

#: what a tensor can be here: NumPy has to be able to hold the result
_HELD = elements.known()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """One line of the table.

    `static`: positions of inputs whose *values* shape the computation (axes, sizes, pads). A
    user of torch passes them as Python numbers, and so does the callable: it is built for them,
    and is not given them.
    """

    build: Callable[[Bound], Kernel]
    static: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """One node with what is known of its inputs before the first call.

    `known` holds the values of constants and static inputs by position, on the CPU.
    """

    node: Node
    opset: int
    shapes: tuple[tuple[int, ...] | None, ...]  # None: an optional input that is left out
    dtypes: tuple[Any, ...]  # torch.dtype, or None
    known: Mapping[int, Any]  # torch.Tensor
    torch: Any
    device: Any
    read: set[str] = dataclasses.field(default_factory=set)

    # --- inputs and outputs

    def has(self, position: int) -> bool:
        return position < len(self.shapes) and self.shapes[position] is not None

    def shape(self, position: int = 0) -> tuple[int, ...]:
        shape = self.shapes[position] if position < len(self.shapes) else None
        if shape is None:
            self.refuse(f"input {position} is left out")
        return shape

    def rank(self, position: int = 0) -> int:
        return len(self.shape(position))

    def dtype(self, position: int = 0) -> Any:
        self.shape(position)
        return self.dtypes[position]

    def is_float(self, position: int = 0) -> bool:
        return bool(self.dtype(position).is_floating_point)

    def constant(self, position: int) -> Any:
        """The values of a constant or static input as a tensor on the device; None for a fed one."""
        tensor = self.known.get(position)
        return None if tensor is None else tensor.to(self.device)

    def value(self, position: int) -> Any:
        """The same as Python numbers, nested as the tensor is."""
        tensor = self.known.get(position)
        return None if tensor is None else tensor.tolist()

    def ints(self, position: int) -> list[int] | None:
        """A static list of integers; None where it is left out."""
        found = self.value(position)
        if found is None:
            return None
        return [int(n) for n in found] if isinstance(found, list) else [int(found)]

    def scalar(self, position: int) -> Any:
        """A static number: a tensor of one element, whatever its rank; None where it is left out."""
        tensor = self.known.get(position)
        if tensor is None:
            return None
        if tensor.numel() != 1:
            self.refuse(f"input {position} must be one number, it is {list(tensor.shape)}")
        return tensor.reshape(()).item()

    @property
    def outputs(self) -> int:
        return len(self.node.outputs)

    def wants(self, position: int) -> bool:
        return position < len(self.node.outputs) and self.node.outputs[position] != ""

    # --- attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return self.node.attributes.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.attribute(name, default))

    def flag(self, name: str, default: int = 0) -> bool:
        return bool(self.attribute(name, default))

    def real(self, name: str, default: float) -> float:
        """float32, as it is in a model file: 0.1 is not quite 0.1 there. "inf" comes as a word."""
        return float(np.float32(self.attribute(name, default)))

    def reals(self, name: str) -> list[float] | None:
        found = self.attribute(name)
        return None if found is None else [float(np.float32(x)) for x in found]

    def text(self, name: str, default: str, known: Iterable[str]) -> str:
        """One of the words `known`; Unsupported for any other."""
        found = str(self.attribute(name, default))
        if found not in known:
            self.refuse(f"{name}={found!r} is not mapped")
        return found

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        found = self.attribute(name, default)
        return None if found is None else [int(n) for n in found]

    def element_type(self, name: str, default: str | None = None) -> Any:
        """An attribute that names an element type, by ONNX's number or by our word, as a torch.dtype."""
        found = self.attribute(name, default)
        if found is None or found == 0:
            return None if default is None else getattr(self.torch, default)
        word = _ELEMENT_TYPES.get(found, str(found)) if isinstance(found, int) else str(found).lower()
        word = {"float": "float32", "double": "float64"}.get(word, word)
        if word not in _HELD:
            self.refuse(f"{name}={word} is not mapped: no host array can hold it")
        return getattr(self.torch, word)

    def ignore(self, *names: str) -> None:
        """Attributes that change nothing in inference, or for these types."""
        self.read.update(names)

    # --- numbers every family needs

    def axis(self, default: int, rank: int | None = None, name: str = "axis") -> int:
        """A non-negative axis of input 0 (or of something of `rank`)."""
        return self.positive(self.integer(name, default), rank)

    def positive(self, axis: int, rank: int | None = None) -> int:
        rank = self.rank() if rank is None else rank
        if not -max(rank, 1) <= axis < max(rank, 1):
            self.refuse(f"axis {axis} of a tensor of rank {rank}")
        return axis % rank if rank else 0

    def refuse(self, why: str) -> NoReturn:
        raise Unsupported(f"PyTorch mapping of {self.node.op}: {why}")

    def finish(self) -> None:
        """Raises Unsupported for an attribute that no builder read."""
        left = sorted(set(self.node.attributes) - self.read)
        if left:
            self.refuse(f"attribute {left[0]!r} is not mapped")
