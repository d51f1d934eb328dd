"""Convolutions of one to three spatial axes, and the sum of overlapping columns."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator
from matrix_adapters.operators.torch_windows import windows

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def convolution(bound: Bound, weight: int = 1) -> Kernel:
    """callable(x, weight, bias or None); `weight` is the position of W among the node's inputs."""
    kernel = bound.shape(weight)[2:]
    if bound.integers("kernel_shape", list(kernel)) != list(kernel):
        bound.refuse("a kernel_shape that is not the weights'")
    w, group = windows(bound, kernel), bound.integer("group", 1)
    function, strides, dilations = CONVOLUTIONS[w.axes], w.strides, w.dilations
    if w.symmetric:
        pads = w.begin
        return lambda x, k, b=None: function(x, k, b, strides, pads, dilations, group)
    padding = w.padding()
    return lambda x, k, b=None: function(F.pad(x, padding), k, b, strides, 0, dilations, group)


def _conv_transpose(bound: Bound) -> Kernel:
    """What torch's symmetric padding cannot say is computed without padding, and cut.

    An output beyond what the input reaches is torch's `output_padding`: nothing but the bias there.
    """
    kernel = bound.shape(1)[2:]
    axes = len(kernel)
    if bound.integers("kernel_shape", list(kernel)) != list(kernel) or axes not in _TRANSPOSED:
        bound.refuse(f"a kernel of {axes} axes, or a kernel_shape that is not the weights'")
    strides = bound.integers("strides") or [1] * axes
    dilations = bound.integers("dilations") or [1] * axes
    extra = bound.integers("output_padding") or [0] * axes
    group = bound.integer("group", 1)
    size = bound.shape()[2:]
    whole = [strides[i] * (size[i] - 1) + (kernel[i] - 1) * dilations[i] + 1 for i in range(axes)]
    begin, end = _transposed_pads(bound, [n + e for n, e in zip(whole, extra, strict=True)], strides)
    function = _TRANSPOSED[axes]
    fits = all(e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True))
    if begin == end and fits and min(begin) >= 0:
        return lambda x, k, b=None: function(x, k, b, strides, begin, extra, group, dilations)
    reach = [whole[i] + extra[i] - begin[i] - end[i] for i in range(axes)]
    beyond = [max(0, begin[i] + reach[i] - whole[i]) for i in range(axes)]
    if min(begin) < 0 or any(beyond[i] >= max(strides[i], dilations[i]) for i in range(axes)):
        bound.refuse("an output beyond what the input reaches, by a stride or more")
    cut = (..., *(slice(begin[i], begin[i] + reach[i]) for i in range(axes)))

    def cropped(x: Any, k: Any, b: Any = None) -> Any:
        return function(x, k, b, strides, 0, beyond, group, dilations)[cut]

    return cropped


def _transposed_pads(bound: Bound, full: list[int], strides: list[int]) -> tuple[list[int], list[int]]:
    """`full`: the output sizes without padding. ConvTranspose-11: of `output_shape`, or of `auto_pad`."""
    axes, size = len(full), bound.shape()[2:]
    auto = bound.text("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    pads = bound.integers("pads") or [0] * (2 * axes)
    wanted = bound.integers("output_shape")
    if wanted is not None:
        wanted = wanted[-axes:]
    elif auto.startswith("SAME"):
        wanted = [size[i] * strides[i] for i in range(axes)]
    if wanted is None:
        return (pads[:axes], pads[axes:]) if auto == "NOTSET" else ([0] * axes, [0] * axes)
    total = [full[i] - wanted[i] for i in range(axes)]
    half = [n // 2 for n in total]
    rest = [n - h for n, h in zip(total, half, strict=True)]
    return (half, rest) if auto == "SAME_UPPER" else (rest, half)


def _col2im(bound: Bound) -> Kernel:
    image, block = bound.ints(1) or [], bound.ints(2) or []
    axes = len(image)
    strides = bound.integers("strides") or [1] * axes
    dilations = bound.integers("dilations") or [1] * axes
    pads = bound.integers("pads") or [0] * (2 * axes)
    if axes != 2:
        bound.refuse(f"{axes} spatial axes: F.fold has two")
    before, after = pads[:2], pads[2:]
    if before == after:
        return lambda x: F.fold(x, image, block, dilations, before, strides)
    padded = [image[i] + before[i] + after[i] for i in range(2)]
    cut = (..., *(slice(before[i], before[i] + image[i]) for i in range(2)))
    return lambda x: F.fold(x, padded, block, dilations, 0, strides)[cut]


OPERATORS: dict[str, Operator] = {
    "Col2Im": Operator(build=_col2im, static=(1, 2)),
    "Conv": Operator(build=convolution),
    "ConvTranspose": Operator(build=_conv_transpose),
}
