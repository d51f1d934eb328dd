"""What moves elements and computes nothing: views, joins, cuts and pads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator


def _concat(bound: Bound) -> Kernel:
    axis = bound.axis(0)
    return lambda *tensors: torch.cat(tensors, axis)


def _split(bound: Bound) -> Kernel:
    axis = bound.axis(0)
    sizes = bound.ints(1) if bound.opset >= 13 else bound.integers("split")
    if not sizes:
        parts = bound.integer("num_outputs", bound.outputs)
        each = -(-bound.shape()[axis] // parts)
        sizes = [each] * (parts - 1)
        sizes.append(bound.shape()[axis] - sum(sizes))
    if len(sizes) == 1:
        return lambda x: x
    return lambda x: torch.split(x, sizes, axis)


def _slice(bound: Bound) -> Kernel:
    """A negative step is the same elements taken forwards, then flipped: torch has none."""
    rank, shape = bound.rank(), bound.shape()
    if bound.opset >= 10:
        starts, ends, axes, steps = (bound.ints(i) for i in (1, 2, 3, 4))
    else:
        starts, ends, axes = (bound.integers(name) for name in ("starts", "ends", "axes"))
        steps = None
    starts, ends = starts or [], ends or []
    taken, flipped = [slice(None)] * rank, []
    for i, axis in enumerate(axes or range(len(starts))):
        place = bound.positive(axis)
        found = range(*slice(starts[i], ends[i], steps[i] if steps else 1).indices(shape[place]))
        if found.step < 0:
            found = found[::-1]
            flipped.append(place)
        taken[place] = slice(found.start, found.stop, found.step) if len(found) else slice(0, 0)
    cut = tuple(taken)
    if flipped:
        return lambda x: x[cut].flip(flipped)
    return lambda x: x[cut]


def _pad(bound: Bound) -> Kernel:
    mode = bound.text("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    rank, shape = bound.rank(), bound.shape()
    if bound.opset >= 11:
        pads, value, axes = bound.ints(1) or [], bound.scalar(2), bound.ints(3)
    else:
        pads, value, axes = bound.integers("pads") or [], bound.real("value", 0.0), None
    places = [bound.positive(axis) for axis in axes] if axes else list(range(rank))
    around = [(0, 0)] * rank
    for i, place in enumerate(places):
        around[place] = (pads[i], pads[len(places) + i])
    flat = [n for pair in reversed(around) for n in pair]
    if mode == "constant":
        return lambda x: F.pad(x, flat, value=0 if value is None else value)
    native = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode]
    if _torch_pads(around, shape, mode) and bound.is_float():
        inner = flat[: 2 * (rank - 2)]
        return lambda x: F.pad(x, inner, mode=native)
    return _pad_by_index(bound, around, mode)


def _torch_pads(around: Sequence[tuple[int, int]], shape: tuple[int, ...], mode: str) -> bool:
    """torch pads the one to three last axes of [N, C, ...], by less than a length (wrap: at most one)."""
    limit = {"reflect": -1, "edge": math.inf, "wrap": 0}[mode]
    return (
        3 <= len(shape) <= 5
        and around[0] == around[1] == (0, 0)
        and all(0 <= n <= shape[i] + limit for i, pair in enumerate(around) for n in pair)
        and 0 not in shape
    )


def _pad_by_index(bound: Bound, around: Sequence[tuple[int, int]], mode: str) -> Kernel:
    """Each axis picked by the places that NumPy's padding of 0, 1, 2, ... names; negative pads cut first."""
    steps = []
    for axis, (before, after) in enumerate(around):
        if before == after == 0:
            continue
        size = bound.shape()[axis]
        kept = np.arange(size)[max(0, -before) : size - max(0, -after)]
        index = np.pad(kept, (max(0, before), max(0, after)), mode=mode)  # type: ignore[call-overload]
        steps.append((axis, torch.from_numpy(index).to(bound.device)))

    def pad(x: Any) -> Any:
        for axis, index in steps:
            x = x.index_select(axis, index)
        return x

    return pad


def _center_crop_pad(bound: Bound) -> Kernel:
    """Odd remainders: one element less is cut, or padded, at the front."""
    wanted = bound.ints(1) or []
    axes = bound.integers("axes")
    places = [bound.positive(axis) for axis in axes] if axes else list(range(bound.rank()))
    around = [(0, 0)] * bound.rank()
    for place, size in zip(places, wanted, strict=True):
        extra = size - bound.shape()[place]
        before = extra // 2 if extra >= 0 else -(-extra // 2)
        around[place] = (before, extra - before)
    flat = [n for pair in reversed(around) for n in pair]
    return lambda x: F.pad(x, flat)


def _reshape(bound: Bound) -> Kernel:
    if bound.opset < 5:
        bound.refuse("a shape as attribute (opset 4 and before)")
    shape, wanted = bound.shape(), bound.ints(1) or []
    if not bound.flag("allowzero"):
        wanted = [shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    if -1 in wanted and 0 not in wanted:  # torch itself says what is wrong with -1 beside 0
        known = math.prod(n for n in wanted if n != -1)
        wanted = [math.prod(shape) // known if n == -1 else n for n in wanted]
    return lambda x: x.reshape(wanted)


def _flatten(bound: Bound) -> Kernel:
    shape = bound.shape()
    axis = bound.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    rows, columns = math.prod(shape[:axis]), math.prod(shape[axis:])
    return lambda x: x.reshape(rows, columns)


def _squeeze(bound: Bound) -> Kernel:
    axes = bound.ints(1) if bound.opset >= 13 else bound.integers("axes")
    if not axes:
        axes = [i for i, n in enumerate(bound.shape()) if n == 1]
    gone = {bound.positive(axis) for axis in axes}
    if any(bound.shape()[axis] != 1 for axis in gone):
        bound.refuse(f"axes {sorted(gone)} of a tensor of shape {list(bound.shape())}")
    kept = [n for i, n in enumerate(bound.shape()) if i not in gone]
    return lambda x: x.reshape(kept)


def _unsqueeze(bound: Bound) -> Kernel:
    axes = (bound.ints(1) if bound.opset >= 13 else bound.integers("axes")) or []
    rank = bound.rank() + len(axes)
    new = {bound.positive(axis, rank) for axis in axes}
    sizes = iter(bound.shape())
    shape = [1 if i in new else next(sizes) for i in range(rank)]
    return lambda x: x.reshape(shape)


def _expand(bound: Bound) -> Kernel:
    shape = torch.broadcast_shapes(bound.shape(), tuple(bound.ints(1) or ()))
    return lambda x: x.expand(shape)


def _tile(bound: Bound) -> Kernel:
    repeats = bound.ints(1) or []
    return lambda x: x.repeat(repeats)


def _transpose(bound: Bound) -> Kernel:
    order = bound.integers("perm") or list(reversed(range(bound.rank())))
    return lambda x: x.permute(order)


def _shape(bound: Bound) -> Kernel:
    start, end = bound.integer("start", 0), bound.attribute("end")
    sizes = list(bound.shape())[start : None if end is None else int(end)]
    device = bound.device
    return lambda x: torch.tensor(sizes, dtype=torch.int64, device=device)


def _size(bound: Bound) -> Kernel:
    device = bound.device
    return lambda x: torch.tensor(x.numel(), dtype=torch.int64, device=device)


def _trilu(bound: Bound) -> Kernel:
    function = torch.triu if bound.flag("upper", 1) else torch.tril
    diagonal = bound.scalar(1) or 0
    return lambda x: function(x, diagonal)


def _depth_to_space(bound: Bound) -> Kernel:
    """CRD is torch's own order of channels; DCR has the block before them."""
    block = bound.integer("blocksize")
    if bound.text("mode", "DCR", ("DCR", "CRD")) == "CRD":
        return lambda x: F.pixel_shuffle(x, block)
    n, c, h, w = bound.shape()
    inner, outer = (n, block, block, c // block**2, h, w), (n, c // block**2, h * block, w * block)
    return lambda x: x.reshape(inner).permute(0, 3, 4, 1, 5, 2).reshape(outer)


def _space_to_depth(bound: Bound) -> Kernel:
    block = bound.integer("blocksize")
    n, c, h, w = bound.shape()
    inner, outer = (n, c, h // block, block, w // block, block), (n, c * block**2, h // block, w // block)
    return lambda x: x.reshape(inner).permute(0, 3, 5, 1, 2, 4).reshape(outer)


OPERATORS: dict[str, Operator] = {
    "CenterCropPad": Operator(build=_center_crop_pad, static=(1,)),
    "Concat": Operator(build=_concat),
    "DepthToSpace": Operator(build=_depth_to_space),
    "Expand": Operator(build=_expand, static=(1,)),
    "Flatten": Operator(build=_flatten),
    "Pad": Operator(build=_pad, static=(1, 2, 3)),
    "Reshape": Operator(build=_reshape, static=(1,)),
    "Shape": Operator(build=_shape),
    "Size": Operator(build=_size),
    "Slice": Operator(build=_slice, static=(1, 2, 3, 4)),
    "SpaceToDepth": Operator(build=_space_to_depth),
    "Split": Operator(build=_split, static=(1,)),
    "Squeeze": Operator(build=_squeeze, static=(1,)),
    "Tile": Operator(build=_tile, static=(1,)),
    "Transpose": Operator(build=_transpose),
    "Trilu": Operator(build=_trilu, static=(1,)),
    "Unsqueeze": Operator(build=_unsqueeze, static=(1,)),
}
