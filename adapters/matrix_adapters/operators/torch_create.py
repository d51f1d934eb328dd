"""What makes a tensor from sizes and numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator


def _constant(bound: Bound) -> Kernel:
    made = _constant_tensor(bound).to(bound.device)
    return lambda: made


def _constant_tensor(bound: Bound) -> Any:
    """One of value, value_float(s), value_int(s)."""
    given = dict(bound.node.attributes)
    bound.read.update(given)
    if len(given) != 1:
        bound.refuse(f"{len(given)} attributes, one is needed")
    ((name, value),) = given.items()
    if name == "value":
        return attribute_tensor(bound, value)
    if name in ("value_float", "value_floats"):
        return torch.tensor(value, dtype=torch.float32)
    if name in ("value_int", "value_ints"):
        return torch.tensor(value, dtype=torch.int64)
    return bound.refuse(f"attribute {name!r} is not mapped")


def attribute_tensor(bound: Bound, value: Any) -> Any:
    """An attribute that is a tensor: {"dtype": word, "shape": [...], "values": numbers, nested or not}."""
    if not isinstance(value, Mapping) or not {"dtype", "shape", "values"} <= value.keys():
        bound.refuse(f"a tensor attribute of unknown form: {value!r}"[:200])
    dtype = getattr(torch, str(value["dtype"]))
    return torch.tensor(_numbers(value["values"]), dtype=dtype).reshape(list(value["shape"]))


def _numbers(values: Any) -> Any:
    """ "nan", "inf" and "-inf" come as words: JSON has no numbers for them."""
    if isinstance(values, (list, tuple)):
        return [_numbers(value) for value in values]
    return float(values) if isinstance(values, str) else values


def _constant_of_shape(bound: Bound) -> Kernel:
    shape = bound.ints(0) or []
    given = bound.attribute("value")
    value = torch.zeros(1) if given is None else attribute_tensor(bound, given)
    number, dtype, device = value.reshape(-1)[0].item(), value.dtype, bound.device
    return lambda: torch.full(shape, number, dtype=dtype, device=device)


def _eye_like(bound: Bound) -> Kernel:
    dtype = bound.element_type("dtype") or bound.dtype()
    rows, columns = bound.shape()
    k, device = bound.integer("k"), bound.device
    if k == 0:
        return lambda x: torch.eye(rows, columns, dtype=dtype, device=device)

    def eye(x: Any) -> Any:
        made = torch.zeros(rows, columns, dtype=dtype, device=device)
        if -rows < k < columns:
            made.diagonal(k).fill_(1)
        return made

    return eye


def _range(bound: Bound) -> Kernel:
    start, limit, step = (bound.scalar(i) for i in range(3))
    dtype, device = bound.dtype(), bound.device
    if step == 0:
        bound.refuse("a step of 0")
    if (limit - start) / step <= 0:
        return lambda: torch.empty(0, dtype=dtype, device=device)
    return lambda: torch.arange(start, limit, step, dtype=dtype, device=device)


def _window(function: Kernel, **coefficients: float) -> Callable[[Bound], Kernel]:
    def build(bound: Bound) -> Kernel:
        size, periodic = int(bound.scalar(0)), bound.flag("periodic", 1)
        dtype, device = bound.element_type("output_datatype", "float32"), bound.device
        if not dtype.is_floating_point:
            bound.refuse(f"output_datatype {dtype}")
        return lambda: function(size, periodic, dtype=dtype, device=device, **coefficients)

    return build


OPERATORS: dict[str, Operator] = {
    "BlackmanWindow": Operator(build=_window(torch.blackman_window), static=(0,)),
    "Constant": Operator(build=_constant),
    "ConstantOfShape": Operator(build=_constant_of_shape, static=(0,)),
    "EyeLike": Operator(build=_eye_like),
    "HammingWindow": Operator(build=_window(torch.hamming_window, alpha=25 / 46, beta=21 / 46), static=(0,)),
    "HannWindow": Operator(build=_window(torch.hann_window), static=(0,)),
    "Range": Operator(build=_range, static=(0, 1, 2)),
}
