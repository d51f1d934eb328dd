"""PyTorch's mapping of operators with one mistake in it; the variant of a cell says which.

A third party's adapter as far as the product is concerned: `tests/real/test_planted_operator_faults.py`
puts it into a catalog of its own. Runs in a worker; only names are read on the host.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from matrix_adapters import pytorch
from matrix_adapters.protocol import Task

Build = Callable[[Any], Any]  # of the mapping: what is known of a node -> a callable on tensors
Spoil = Callable[[Build, Any], Any]


def _without_approximate(build: Build, bound: Any) -> Any:
    """Gelu is the exact one, whatever was asked."""
    left = {name: value for name, value in bound.node.attributes.items() if name != "approximate"}
    return build(_with(bound, left))


def _pad_off_by_one(build: Build, bound: Any) -> Any:
    """One place of padding stands before the first axis that should stand behind it: the shape is right."""
    pads = list(bound.node.attributes.get("pads", []))
    axes = len(pads) // 2
    if not pads or not pads[axes]:
        return build(bound)
    pads[0], pads[axes] = pads[0] + 1, pads[axes] - 1
    return build(_with(bound, {**bound.node.attributes, "pads": pads}))


def _wrapped(build: Build, bound: Any) -> Any:
    """int64 by way of int32."""
    kernel = build(bound)
    if str(bound.dtype()) != "torch.int64":
        return kernel
    return lambda *tensors: kernel(*tensors).int().long()


def _off_by_a_thousandth(build: Build, bound: Any) -> Any:
    """An approximation with an absolute error of 1e-3, in bfloat16 only."""
    kernel = build(bound)
    if str(bound.dtype()) != "torch.bfloat16":
        return kernel
    return lambda x: (kernel(x.float()) + 1e-3).to(x.dtype)


def _nan_swallowed(build: Build, bound: Any) -> Any:
    """NaN counts as zero."""
    kernel = build(bound)

    def clean(tensor: Any) -> Any:
        return None if tensor is None else tensor.nan_to_num(0.0, math.inf, -math.inf)

    return lambda *tensors: kernel(*map(clean, tensors))


UNTOUCHED = "untouched"
#: variant -> operator -> what becomes of its mapping
FAULTS: Mapping[str, Mapping[str, Spoil]] = {
    UNTOUCHED: {},
    "gelu": {"Gelu": _without_approximate},
    "pad": dict.fromkeys(("Conv", "AveragePool", "MaxPool"), _pad_off_by_one),
    "int32": dict.fromkeys(("Add", "Mul", "CumSum", "ReduceSum"), _wrapped),
    "tanh": {"Tanh": _off_by_a_thousandth},
    "nan": dict.fromkeys(("Add", "ReduceSum", "Tanh"), _nan_swallowed),
}


class Adapter(pytorch.Adapter):
    """The variant is the fault; all else is PyTorch's default."""

    def __init__(self, task: Task) -> None:
        self._planted = FAULTS[task.variant or UNTOUCHED]
        super().__init__(dataclasses.replace(task, variant=""))

    def start(self) -> None:
        super().start()
        from matrix_adapters.operators import torch_table

        right = torch_table.find

        def find(operator: str, domain: str = "") -> Any:
            found, spoil = right(operator, domain), self._planted.get(operator)
            if spoil is None:
                return found
            return dataclasses.replace(found, build=lambda bound: spoil(found.build, bound))

        torch_table.find = find


def _with(bound: Any, attributes: Mapping[str, Any]) -> Any:
    """The same node with other attributes. What is read of them counts as read in the original."""
    return dataclasses.replace(bound, node=dataclasses.replace(bound.node, attributes=attributes))
