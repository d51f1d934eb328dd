"""Where the windows of pooling and convolution lie. Formulas: AveragePool and Conv in ONNX's Operators.md."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from matrix_adapters.operators.oracle_op import Array


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis: sizes in elements; `begin` and `end` are the padding."""

    size: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    windows: int

    @property
    def extent(self) -> int:
        """What one window spans."""
        return (self.kernel - 1) * self.dilation + 1


def axes(
    sizes: Sequence[int],
    kernel: Sequence[int],
    *,
    auto_pad: str | None = "NOTSET",
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: int | None = 0,
) -> list[Axis]:
    """Every spatial axis. Raises ValueError for attributes of another rank."""
    rank = len(sizes)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = pads or [0] * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ValueError("kernel, strides, dilations and pads must have one entry (pads two) an axis")
    return [
        _axis(
            size,
            kernel[i],
            strides[i],
            dilations[i],
            pads=(pads[i], pads[rank + i]),
            auto_pad=auto_pad,
            ceil_mode=bool(ceil_mode),
        )
        for i, size in enumerate(sizes)
    ]


def _axis(
    size: int,
    kernel: int,
    stride: int,
    dilation: int,
    *,
    pads: tuple[int, int],
    auto_pad: str | None,
    ceil_mode: bool,
) -> Axis:
    extent = (kernel - 1) * dilation + 1
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        windows = math.ceil(size / stride)
        total = max((windows - 1) * stride + extent - size, 0)
        less, more = total // 2, total - total // 2
        pads = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
        return Axis(size, kernel, stride, dilation, *pads, windows)
    if auto_pad == "VALID":
        pads = (0, 0)
    room = size + sum(pads) - extent
    windows = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (windows - 1) * stride >= size + pads[0]:
        windows -= 1  # a window that begins in the padding at the end does not count
    return Axis(size, kernel, stride, dilation, *pads, max(windows, 0))


def gather(x: Array, spatial: Sequence[Axis]) -> tuple[Array, Array, Array]:
    """The elements under every window of x, [N, C, *sizes].

    Returns values [N, C, *windows, K] (anything where there is no element), and for [*windows, K]
    whether the place lies on an element, and whether it lies on an element or on declared padding.
    """
    here: Array = np.ones((1,) * (2 * len(spatial)), bool)
    padded = here
    values = x
    rank = len(spatial)
    for i, axis in enumerate(spatial):
        place = np.arange(axis.windows)[:, None] * axis.stride - axis.begin
        place = place + np.arange(axis.kernel)[None, :] * axis.dilation
        inside = (place >= 0) & (place < axis.size)
        declared = (place >= -axis.begin) & (place < axis.size + axis.end)
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = place.shape
        here = here & inside.reshape(shape)
        padded = padded & declared.reshape(shape)
        # axis i became two, (window, place): windows stay at 2 + i, places move to the end
        values = np.take(values, np.clip(place, 0, max(axis.size - 1, 0)), axis=2 + i)
        values = np.moveaxis(values, 3 + i, -1)
    count = math.prod(axis.kernel for axis in spatial)
    windows = tuple(axis.windows for axis in spatial)
    return (
        values.reshape(*x.shape[:2], *windows, count),
        here.reshape(*windows, count),
        padded.reshape(*windows, count),
    )


def places(spatial: Sequence[Axis], *, column_major: bool) -> Array:
    """The flat index in one image of every place of `gather`, int64[*windows, K]; clipped as there."""
    rank = len(spatial)
    order = range(rank) if column_major else range(rank - 1, -1, -1)
    step = {}
    reach = 1
    for i in order:
        step[i] = reach
        reach *= spatial[i].size
    total: Array = np.zeros((1,) * (2 * rank), np.int64)
    for i, axis in enumerate(spatial):
        place = np.arange(axis.windows)[:, None] * axis.stride - axis.begin
        place = np.clip(place + np.arange(axis.kernel)[None, :] * axis.dilation, 0, max(axis.size - 1, 0))
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = place.shape
        total = total + place.reshape(shape) * step[i]
    return total.reshape(*(axis.windows for axis in spatial), -1)
