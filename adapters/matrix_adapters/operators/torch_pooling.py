"""Pools of one to three spatial axes.

Where torch's own arguments can say what ONNX asks (equal pads of at most half a window, no
dilation in averages), its pool is called as it is; otherwise the input is padded first, and
averages are scaled by counts that were worked out beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator
from matrix_adapters.operators.torch_windows import Windows, windows

_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_MAXIMUM = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def _average_pool(bound: Bound) -> Kernel:
    ceil, counted = bound.flag("ceil_mode"), bound.flag("count_include_pad")
    w = windows(bound, _kernel(bound), ceil=ceil)
    plain = set(w.dilations) == {1} and w.symmetric
    if plain and all(2 * p <= k for p, k in zip(w.begin, w.kernel, strict=True)):
        ceil = ceil and "auto_pad" not in bound.node.attributes
        function, kernel, strides, pads = _AVERAGE[w.axes], w.kernel, w.strides, w.begin
        return lambda x: function(x, kernel, strides, pads, ceil, counted)
    scale = torch.from_numpy(1 / _counts(w, counted)).to(bound.device, bound.dtype())
    total = _sums(bound, w)
    return lambda x: total(x) * scale


def _lp_pool(bound: Bound) -> Kernel:
    """F.lp_pool forgets the absolute value for odd p, so the formula is spelt out."""
    p = bound.integer("p", 2)
    total = _sums(bound, windows(bound, _kernel(bound), ceil=bound.flag("ceil_mode")))
    if p == 1:
        return lambda x: total(x.abs())
    if p == 2:
        return lambda x: total(x.square()).sqrt()
    return lambda x: total(x.abs().pow(p)).pow(1 / p)


def _max_pool(bound: Bound) -> Kernel:
    w = windows(bound, _kernel(bound), ceil=bound.flag("ceil_mode"))
    column_major = bound.flag("storage_order")
    function = _MAXIMUM[w.axes]
    kernel, strides, dilations = w.kernel, w.strides, w.dilations
    native = w.symmetric and all(2 * w.begin[i] <= w.kernel[i] for i in range(w.axes))
    padding = w.padding()
    # What a symmetric pool of torch would not reach by itself is the right edge of ceil mode.
    exact = native and all(
        (w.size[i] + 2 * w.begin[i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 == w.count[i]
        for i in range(w.axes)
    )
    lowest = -math.inf if bound.is_float() else torch.iinfo(bound.dtype()).min
    indices = bound.wants(1)

    def pool(x: Any) -> Any:
        if exact:
            return function(x, kernel, strides, w.begin, dilations, False, indices)
        return function(F.pad(x, padding, value=lowest), kernel, strides, 0, dilations, False, indices)

    if not indices:
        return pool
    place = _places(bound, w, padded=not exact, column_major=column_major)

    def pool_with_indices(x: Any) -> Any:
        values, found = pool(x)
        return values, place(found)

    return pool_with_indices


def _places(bound: Bound, w: Windows, *, padded: bool, column_major: bool) -> Kernel:
    """torch counts within one (padded) plane, ONNX in the whole tensor."""
    batch, channels = bound.shape()[:2]
    grid = np.arange(math.prod(w.size)).reshape(w.size)
    if column_major:
        grid = np.arange(math.prod(w.size)).reshape(w.size[::-1]).T
    if padded:
        pads = w.padding()
        for axis in range(w.axes):
            first, last = pads[2 * (w.axes - 1 - axis) : 2 * (w.axes - axis)]
            if last < 0:
                grid = np.take(grid, range(grid.shape[axis] + last), axis)
            around = [(0, 0)] * w.axes
            around[axis] = (first, max(last, 0))
            grid = np.pad(grid, around)
    of_plane = torch.from_numpy(np.ascontiguousarray(grid).reshape(-1)).to(bound.device)
    offset = torch.arange(batch * channels, device=bound.device) * math.prod(w.size)
    offset = offset.reshape(batch, channels, *([1] * w.axes))
    if not padded and not column_major:
        return lambda found: found + offset
    return lambda found: of_plane[found] + offset


def _max_unpool(bound: Bound) -> Kernel:
    """Indices count in the whole inferred output, as MaxPool's do."""
    kernel = _kernel(bound)
    axes, shape = len(kernel), bound.shape()
    strides = bound.integers("strides") or [1] * axes
    pads = bound.integers("pads") or [0] * (2 * axes)
    inferred = [(shape[2 + i] - 1) * strides[i] - pads[i] - pads[axes + i] + kernel[i] for i in range(axes)]
    whole = (*shape[:2], *inferred)
    wanted = bound.ints(2)
    beyond = [0] * len(whole) if wanted is None else [n - m for n, m in zip(wanted, whole, strict=True)]
    if min(beyond) < 0:
        bound.refuse("an output_shape smaller than what the indices count in")
    padding = [n for extra in reversed(beyond) for n in (0, extra)]

    def unpool(x: Any, indices: Any) -> Any:
        flat = x.new_zeros(math.prod(whole)).scatter_(0, indices.reshape(-1), x.reshape(-1))
        made = flat.reshape(whole)
        return F.pad(made, padding) if any(padding) else made

    return unpool


def _global_average(bound: Bound) -> Kernel:
    if bound.rank() == 4:
        return lambda x: F.adaptive_avg_pool2d(x, 1)
    axes = list(range(2, bound.rank()))
    return lambda x: x.mean(axes, keepdim=True)


def _global_max(bound: Bound) -> Kernel:
    axes = list(range(2, bound.rank()))
    return lambda x: torch.amax(x, axes, keepdim=True)


def _global_lp(bound: Bound) -> Kernel:
    p, axes = bound.integer("p", 2), list(range(2, bound.rank()))
    return lambda x: torch.linalg.vector_norm(x, p, axes, keepdim=True)


def _kernel(bound: Bound) -> tuple[int, ...]:
    found = bound.integers("kernel_shape")
    if not found:
        bound.refuse("no kernel_shape")
    return tuple(found)


def _sums(bound: Bound, w: Windows) -> Kernel:
    """callable(x): the sum of every window, zeros in the padding."""
    padding = w.padding()
    if set(w.dilations) == {1}:
        function, kernel, strides, size = _AVERAGE[w.axes], w.kernel, w.strides, math.prod(w.kernel)
        if w.axes > 1:
            return lambda x: function(F.pad(x, padding), kernel, strides, divisor_override=1)
        return lambda x: function(F.pad(x, padding), kernel, strides) * size
    steps = [torch.from_numpy(_reached(w, axis).reshape(-1)).to(bound.device) for axis in range(w.axes)]

    def gathered(x: Any) -> Any:
        x = F.pad(x, padding)
        for axis, index in enumerate(steps):
            x = x.index_select(2 + axis, index)
            x = x.unflatten(2 + axis, (w.count[axis], w.kernel[axis])).sum(3 + axis)
        return x

    return gathered


def _reached(w: Windows, axis: int) -> Any:
    """Places in the padded axis, int64[windows, kernel]."""
    starts = np.arange(w.count[axis])[:, None] * w.strides[axis]
    return starts + np.arange(w.kernel[axis])[None, :] * w.dilations[axis]


def _counts(w: Windows, padding_counts: bool) -> Any:
    """How many elements each window averages over, float64[windows...]."""
    per_axis: list[Any] = []
    for axis in range(w.axes):
        place = _reached(w, axis)
        low = 0 if padding_counts else w.begin[axis]
        high = w.begin[axis] + w.size[axis] + (w.end[axis] if padding_counts else 0)
        per_axis.append(((place >= low) & (place < high)).sum(1).astype(np.float64))
    return _outer(per_axis)


def _outer(factors: Sequence[Any]) -> Any:
    product = np.ones(())
    for factor in factors:
        product = product[..., None] * factor
    return product


OPERATORS: dict[str, Operator] = {
    "AveragePool": Operator(build=_average_pool),
    "GlobalAveragePool": Operator(build=_global_average),
    "GlobalLpPool": Operator(build=_global_lp),
    "GlobalMaxPool": Operator(build=_global_max),
    "LpPool": Operator(build=_lp_pool),
    "MaxPool": Operator(build=_max_pool),
    "MaxUnpool": Operator(build=_max_unpool, static=(2,)),
}
