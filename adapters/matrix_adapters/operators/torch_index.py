"""Picking and placing by index, order, and sets. Negative indices count from the end, as ONNX has it."""

from __future__ import annotations

import math
from typing import Any

import torch

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator

_REDUCTIONS = {"none": "", "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _wrapped(bound: Bound, position: int, size: int) -> Kernel:
    """callable(indices) -> int64 indices without negative ones; fixed indices are made so once."""
    fixed = bound.constant(position)
    if fixed is not None:
        index = fixed.long()
        index = torch.where(index < 0, index + size, index)
        return lambda _: index
    return lambda given: torch.where(given < 0, given + size, given).long()


def _gather(bound: Bound) -> Kernel:
    """Advanced indexing takes negative indices by itself; index_select and 0-d ones do not."""
    axis = bound.axis(0)
    size, shape = bound.shape()[axis], bound.shape(1)
    before = (slice(None),) * axis
    fixed = bound.constant(1)
    if fixed is None and shape:
        return lambda x, index: x[(*before, index)]
    wrap = _wrapped(bound, 1, size)
    made = (*bound.shape()[:axis], *shape, *bound.shape()[axis + 1 :])
    return lambda x, index: x.index_select(axis, wrap(index).reshape(-1)).reshape(made)


def _gather_elements(bound: Bound) -> Kernel:
    axis = bound.axis(0)
    wrap = _wrapped(bound, 1, bound.shape()[axis])
    return lambda x, index: torch.gather(x, axis, wrap(index))


def _gather_nd(bound: Bound) -> Kernel:
    batch = bound.integer("batch_dims")
    shape = bound.shape(1)
    grids = []
    for axis in range(batch):
        sizes = [1] * (len(shape) - 1)
        sizes[axis] = shape[axis]
        grids.append(torch.arange(shape[axis], device=bound.device).reshape(sizes))
    return lambda x, index: x[(*grids, *index.unbind(-1))]


def _scatter_elements(bound: Bound) -> Kernel:
    axis = bound.axis(0)
    reduction = _REDUCTIONS[bound.text("reduction", "none", _REDUCTIONS)]
    wrap = _wrapped(bound, 1, bound.shape()[axis])
    if not reduction:
        return lambda x, index, updates: torch.scatter(x, axis, wrap(index), updates)
    if reduction == "sum":
        return lambda x, index, updates: torch.scatter_add(x, axis, wrap(index), updates)
    return lambda x, index, updates: torch.scatter_reduce(x, axis, wrap(index), updates, reduction)


def _scatter_nd(bound: Bound) -> Kernel:
    reduction = _REDUCTIONS[bound.text("reduction", "none", _REDUCTIONS)]
    if reduction in ("", "sum"):
        add = bool(reduction)
        return lambda x, index, updates: x.index_put(index.unbind(-1), updates, accumulate=add)
    shape, depth = bound.shape(), bound.shape(1)[-1]
    rows, columns = math.prod(shape[:depth]), math.prod(shape[depth:])
    sizes = torch.tensor(shape[:depth], device=bound.device)
    steps = torch.tensor([math.prod(shape[i + 1 : depth]) for i in range(depth)], device=bound.device)

    def scatter(x: Any, index: Any, updates: Any) -> Any:
        row = (torch.where(index < 0, index + sizes, index) * steps).sum(-1).reshape(-1, 1)
        flat = x.reshape(rows, columns)
        made = flat.scatter_reduce(0, row.expand(-1, columns), updates.reshape(-1, columns), reduction)
        return made.reshape(shape)

    return scatter


def _tensor_scatter(bound: Bound) -> Kernel:
    """A cache of keys or values, written from `write_indices` on (of each batch entry)."""
    circular = bound.text("mode", "linear", ("linear", "circular")) == "circular"
    axis, size = bound.axis(-2), bound.shape()
    length, rank = bound.shape(1)[axis], len(size)
    if axis == 0:
        bound.refuse("axis 0 is the batch")
    along = torch.arange(length, device=bound.device).reshape([-1 if i == axis else 1 for i in range(rank)])
    shape, batch = bound.shape(1), [-1 if i == 0 else 1 for i in range(rank)]

    def scatter(cache: Any, update: Any, begin: Any = None) -> Any:
        place = along if begin is None else along + begin.reshape(batch)
        if circular:
            place = place % size[axis]
        return torch.scatter(cache, axis, place.expand(shape), update)

    return scatter


def _compress(bound: Bound) -> Kernel:
    """The condition may be shorter than the axis: what it does not reach is dropped."""
    if bound.attribute("axis") is None:
        return lambda x, condition: x.reshape(-1).index_select(0, torch.nonzero(condition).reshape(-1))
    axis = bound.axis(0)
    return lambda x, condition: x.index_select(axis, torch.nonzero(condition).reshape(-1))


def _non_zero(bound: Bound) -> Kernel:
    return lambda x: torch.nonzero(x).t()


def _one_hot(bound: Bound) -> Kernel:
    """Indices in [-depth, depth); any other gives a row of the off value."""
    rank = bound.rank()
    axis, depth = bound.axis(-1, rank + 1), int(bound.scalar(1))
    sizes = [depth if i == axis else 1 for i in range(rank + 1)]
    classes = torch.arange(depth, device=bound.device).reshape(sizes)

    def one_hot(indices: Any, values: Any) -> Any:
        index = torch.where(indices < 0, indices + depth, indices).unsqueeze(axis)
        return torch.where(index == classes, values[1], values[0])

    return one_hot


def _reverse_sequence(bound: Bound) -> Kernel:
    batch, time = bound.axis(1, name="batch_axis"), bound.axis(0, name="time_axis")
    shape, rank = bound.shape(), bound.rank()
    steps = torch.arange(shape[time], device=bound.device).reshape(
        [-1 if i == time else 1 for i in range(rank)]
    )
    per_batch = [-1 if i == batch else 1 for i in range(rank)]

    def reverse(x: Any, lengths: Any) -> Any:
        end = lengths.reshape(per_batch)
        index = torch.where(steps < end, end - 1 - steps, steps)
        return torch.gather(x, time, index.expand(shape))

    return reverse


def _top_k(bound: Bound) -> Kernel:
    """Of equal values ONNX names the lower index first, torch.topk any.

    In float32 and float64 equal values are rare, and torch.topk is what users call; narrow types
    are full of them, so those take a stable sort, the one function of torch that keeps the order.
    """
    k = int(bound.scalar(1)) if bound.opset >= 10 else bound.integer("k")
    axis, largest, ordered = bound.axis(-1), bound.flag("largest", 1), bound.flag("sorted", 1)
    if bound.outputs == 1:
        return lambda x: torch.topk(x, k, axis, largest, ordered)[0]
    if bound.dtype() in (torch.float32, torch.float64):
        return lambda x: tuple(torch.topk(x, k, axis, largest, ordered))

    def by_sort(x: Any) -> Any:
        values, index = torch.sort(x, dim=axis, descending=largest, stable=True)
        return values.narrow(axis, 0, k), index.narrow(axis, 0, k)

    return by_sort


def _unique(bound: Bound) -> Kernel:
    """torch has no index of first occurrence: it is the least place among those of each value."""
    ordered = bound.flag("sorted", 1)
    axis = None if bound.attribute("axis") is None else bound.axis(0)
    count = bound.outputs
    if count == 1 and ordered:
        return lambda x: torch.unique(x, dim=axis)

    def unique(x: Any) -> Any:
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=axis)
        inverse = inverse.reshape(-1)
        places = torch.arange(inverse.numel(), device=x.device)
        first = places.new_zeros(counts.numel()).scatter_reduce_(
            0, inverse, places, "amin", include_self=False
        )
        if not ordered:
            order = torch.argsort(first)
            values = values.index_select(axis or 0, order)
            first, counts = first[order], counts[order]
            inverse = torch.empty_like(order).scatter_(0, order, places[: order.numel()])[inverse]
        made = (values, first, inverse, counts)
        return values if count == 1 else made[:count]

    return unique


OPERATORS: dict[str, Operator] = {
    "Compress": Operator(build=_compress),
    "Gather": Operator(build=_gather),
    "GatherElements": Operator(build=_gather_elements),
    "GatherND": Operator(build=_gather_nd),
    "NonZero": Operator(build=_non_zero),
    "OneHot": Operator(build=_one_hot, static=(1,)),
    "ReverseSequence": Operator(build=_reverse_sequence),
    "Scatter": Operator(build=_scatter_elements),
    "ScatterElements": Operator(build=_scatter_elements),
    "ScatterND": Operator(build=_scatter_nd),
    "TensorScatter": Operator(build=_tensor_scatter),
    "TopK": Operator(build=_top_k, static=(1,)),
    "Unique": Operator(build=_unique),
}
