"""Changes of element type."""

from __future__ import annotations

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator


def _cast(bound: Bound) -> Kernel:
    """`saturate` and `round_mode` speak of 8-bit floats, which are refused."""
    bound.ignore("saturate", "round_mode")
    dtype = bound.element_type("to")
    if dtype is None:
        bound.refuse("no type to cast to")
    return lambda x: x.to(dtype)


def _cast_like(bound: Bound) -> Kernel:
    bound.ignore("saturate", "round_mode")
    dtype = bound.dtype(1)
    return lambda x, _: x.to(dtype)


def _bit_cast(bound: Bound) -> Kernel:
    dtype = bound.element_type("to")
    if dtype is None or dtype.itemsize != bound.dtype().itemsize:
        bound.refuse("types of different size")
    return lambda x: x.view(dtype)


OPERATORS: dict[str, Operator] = {
    "BitCast": Operator(build=_bit_cast),
    "Cast": Operator(build=_cast),
    "CastLike": Operator(build=_cast_like),
}
