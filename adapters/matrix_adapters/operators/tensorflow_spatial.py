"""Data with spatial dimensions: where the channels lie, windows, strides, dilations, padding.

TensorFlow's CPU kernels for convolutions and pooling take N, spatial..., C only. A mapping
transposes inside the call, unless the runner has already given it such data (`channels_last`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from matrix_adapters.operators.tensorflow_site import Call, Site

#: attributes that `window` reads
WINDOW = "auto_pad dilations kernel_shape pads strides"


@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    """The sizes of a tensor with spatial dimensions, wherever its channels lie."""

    batch: int
    channels: int
    size: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of spatial dimensions."""
        return len(self.size)


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A window that slides: per spatial dimension its extent, steps, padding, and how often it fits.

    `end` is what the attributes say; where `ceil_mode` makes the last window stick out by more,
    `extra` is how much.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    out: tuple[int, ...]
    extra: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """How far the dilated window reaches."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def padded(self) -> bool:
        """Whether anything has to be added around the data."""
        return any((*self.begin, *self.end, *self.extra))


def data(site: Site, index: int = 0) -> Data:
    """The sizes of an input. Raises Unsupported without spatial dimensions."""
    shape = site.shape(index)
    if len(shape) < 3:
        raise site.refusal(f"data of {len(shape)} dimensions have no spatial ones")
    if site.channels_last:
        return Data(shape[0], shape[-1], shape[1:-1])
    return Data(shape[0], shape[1], shape[2:])


def place(site: Site, axis: int) -> int:
    """Where ONNX's axis of the first input lies here."""
    axis = site.axis(axis)
    if not site.channels_last or axis == 0:
        return axis
    return site.rank() - 1 if axis == 1 else axis - 1


def window(site: Site, kernel: Sequence[int], size: Sequence[int], *, ceil: bool = False) -> Window:
    """The window of a convolution or pooling over data of this size; `auto_pad` is resolved."""
    rank = len(size)
    kernel = tuple(int(k) for k in kernel)
    strides = site.ints("strides", (1,) * rank)
    dilations = site.ints("dilations", (1,) * rank)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    auto = site.get("auto_pad", "NOTSET")
    pads = site.ints("pads", (0,) * (2 * rank)) if auto in ("NOTSET", "") else (0,) * (2 * rank)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        needed = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(size, strides, reach, strict=True)]
        small, large = [n // 2 for n in needed], [n - n // 2 for n in needed]
        pads = (*small, *large) if auto == "SAME_UPPER" else (*large, *small)
    elif auto not in ("NOTSET", "", "VALID"):
        raise site.refusal(f"no auto_pad {auto!r}")
    begin, end = pads[:rank], pads[rank:]
    out, extra = [], []
    for n, s, r, b, e in zip(size, strides, reach, begin, end, strict=True):
        room = n + b + e - r
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + b:  # the last window would begin in the padding
            count -= 1
        out.append(count)
        extra.append(max((count - 1) * s + r - (n + b + e), 0))
    return Window(kernel, strides, dilations, begin, end, tuple(out), tuple(extra))


def last(tf: Any, rank: int) -> Call:
    """N, C, spatial... -> N, spatial..., C."""
    permutation = (0, *range(2, rank + 2), 1)
    return lambda x: tf.transpose(x, permutation)


def first(tf: Any, rank: int) -> Call:
    """The inverse of `last`."""
    permutation = (0, rank + 1, *range(1, rank + 1))
    return lambda x: tf.transpose(x, permutation)


def in_own_layout(site: Site, rank: int, core: Call) -> Call:
    """`core` takes and gives channels last; what comes out here is what the node's neighbours see."""
    if site.channels_last:
        return core
    to_last, to_first = last(site.tf, rank), first(site.tf, rank)
    return lambda x, *rest: to_first(core(to_last(x), *rest))


def filters_last(site: Site, rank: int) -> Call:
    """Filters as spatial..., in, out: ONNX has them as out, in, spatial... (transposed: in, out)."""
    if site.channels_last:
        return lambda w: w
    tf, permutation = site.tf, (*range(2, rank + 2), 1, 0)
    return lambda w: tf.transpose(w, permutation)


def filter_shape(site: Site, index: int) -> tuple[int, ...]:
    """The shape of a filter as ONNX has it, whatever it is here."""
    shape = site.shape(index)
    return (shape[-1], shape[-2], *shape[:-2]) if site.channels_last else shape


def padding(begin: Sequence[int], end: Sequence[int]) -> list[list[int]]:
    """What `tf.pad` and explicit padding want, for data with the channels last."""
    return [[0, 0], *([b, e] for b, e in zip(begin, end, strict=True)), [0, 0]]
