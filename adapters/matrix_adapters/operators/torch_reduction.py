"""Reductions, positions of extremes, running sums and products. Integers keep their type, and wrap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator

#: of `reduce(bound)`: callable(x, axes, keepdims)
Reduction = Any
_AXES_INPUT = {"ReduceSum": 13}  # all others: 18


def _reduce(make: Callable[[Bound], Reduction], each: Kernel | None = None) -> Callable[[Bound], Kernel]:
    """`each`: what is left of a reduction over no axes at all (noop_with_empty_axes)."""

    def build(bound: Bound) -> Kernel:
        keep = bound.flag("keepdims", 1)
        as_input = bound.opset >= _AXES_INPUT.get(bound.node.op, 18)
        axes = bound.ints(1) if as_input else bound.integers("axes")
        if not axes:
            if as_input and bound.flag("noop_with_empty_axes"):
                return each or (lambda x: x)
            axes = list(range(bound.rank()))
        bound.ignore("noop_with_empty_axes")
        axes = sorted({bound.positive(axis) for axis in axes})
        if not bound.rank():
            axes = []  # a scalar is its own extreme and sum
        reduce = make(bound)
        return lambda x: reduce(x, axes, keep)

    return build


def _sum(bound: Bound) -> Reduction:
    kept = bound.dtype()
    if bound.is_float():
        return torch.sum
    return lambda x, axes, keep: torch.sum(x, axes, keep, dtype=kept)


def _mean(bound: Bound) -> Reduction:
    if bound.is_float():
        return torch.mean
    kept, shape = bound.dtype(), bound.shape()

    def mean(x: Any, axes: list[int], keep: bool) -> Any:
        count = math.prod(shape[axis] for axis in axes)
        return torch.div(torch.sum(x, axes, keep), count, rounding_mode="trunc").to(kept)

    return mean


def _extreme(greatest: bool) -> Callable[[Bound], Reduction]:
    """Of nothing: the type's least (greatest) value, as ReduceMax-20 says."""

    def make(bound: Bound) -> Reduction:
        function = torch.amax if greatest else torch.amin
        if 0 not in bound.shape():
            return lambda x, axes, keep: function(x, axes, keep) if axes else x
        fill = _least(bound, greatest)

        def extreme(x: Any, axes: list[int], keep: bool) -> Any:
            if any(x.shape[axis] == 0 for axis in axes):
                return torch.full_like(torch.sum(x, axes, keep), fill, dtype=x.dtype)
            return function(x, axes, keep)

        return extreme

    return make


def _least(bound: Bound, greatest: bool) -> Any:
    dtype = bound.dtype()
    if bound.is_float():
        return -math.inf if greatest else math.inf
    if dtype == torch.bool:
        return not greatest
    return torch.iinfo(dtype).min if greatest else torch.iinfo(dtype).max


def _product(bound: Bound) -> Reduction:
    """torch multiplies along one axis at a time: several become one first, so that it rounds once."""
    kept, shape = bound.dtype(), bound.shape()

    def product(x: Any, axes: list[int], keep: bool) -> Any:
        if len(axes) < 2:
            return torch.prod(x, axes[0], keep, dtype=kept) if axes else x
        count = len(axes)
        made = torch.prod(x.movedim(axes, list(range(count))).flatten(0, count - 1), 0, dtype=kept)
        return made.reshape([1 if i in axes else n for i, n in enumerate(shape)]) if keep else made

    return product


def _norm(p: int) -> Callable[[Bound], Reduction]:
    def make(bound: Bound) -> Reduction:
        if bound.is_float():
            return lambda x, axes, keep: torch.linalg.vector_norm(x, p, axes, keep) if axes else x.abs()
        kept = bound.dtype()
        if p == 1:
            return lambda x, axes, keep: torch.sum(x.abs(), axes, keep, dtype=kept)
        return lambda x, axes, keep: torch.sum(x.double().square(), axes, keep).sqrt().to(kept)

    return make


def _sum_square(bound: Bound) -> Reduction:
    total = _sum(bound)
    return lambda x, axes, keep: total(x.square(), axes, keep)


def _log_sum(bound: Bound) -> Reduction:
    total = _sum(bound)
    return lambda x, axes, keep: total(x, axes, keep).log()


def _log_sum_exp(bound: Bound) -> Reduction:
    if not bound.is_float():
        bound.refuse("integers")
    return lambda x, axes, keep: torch.logsumexp(x, axes, keep) if axes else x


def _arg(greatest: bool) -> Callable[[Bound], Kernel]:
    function = torch.argmax if greatest else torch.argmin

    def build(bound: Bound) -> Kernel:
        axis, keep = bound.axis(0), bound.flag("keepdims", 1)
        if not bound.flag("select_last_index"):
            return lambda x: function(x, axis, keep)
        last = bound.shape()[axis] - 1
        return lambda x: last - function(x.flip(axis), axis, keep)

    return build


def _running(function: Kernel, neutral: int) -> Callable[[Bound], Kernel]:
    def build(bound: Bound) -> Kernel:
        exclusive, reverse = bound.flag("exclusive"), bound.flag("reverse")
        axis, kept = bound.positive(bound.scalar(1)), bound.dtype()
        length = bound.shape()[axis]

        def running(x: Any) -> Any:
            if reverse:
                x = x.flip(axis)
            if exclusive and length:
                first = torch.full_like(x.narrow(axis, 0, 1), neutral)
                x = torch.cat([first, x.narrow(axis, 0, length - 1)], axis)
            made = function(x, axis, dtype=kept)
            return made.flip(axis) if reverse else made

        if exclusive or reverse:
            return running
        return lambda x: function(x, axis, dtype=kept)

    return build


def _reduction(make: Callable[[Bound], Reduction], each: Kernel | None = None) -> Operator:
    return Operator(build=_reduce(make, each), static=(1,))


OPERATORS: dict[str, Operator] = {
    "ArgMax": Operator(build=_arg(True)),
    "ArgMin": Operator(build=_arg(False)),
    "CumProd": Operator(build=_running(torch.cumprod, 1), static=(1,)),
    "CumSum": Operator(build=_running(torch.cumsum, 0), static=(1,)),
    "ReduceL1": _reduction(_norm(1), torch.abs),
    "ReduceL2": _reduction(_norm(2), torch.abs),
    "ReduceLogSum": _reduction(_log_sum, torch.log),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _reduction(_extreme(True)),
    "ReduceMean": _reduction(_mean),
    "ReduceMin": _reduction(_extreme(False)),
    "ReduceProd": _reduction(_product),
    "ReduceSum": _reduction(_sum),
    "ReduceSumSquare": _reduction(_sum_square, torch.square),
}
