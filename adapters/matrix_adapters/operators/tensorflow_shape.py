"""What moves elements and keeps their values: shapes, slices, concatenation, padding, copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matrix_adapters.operators import tensorflow_spatial as spatial
from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()


@TABLE.add("Reshape", attributes="allowzero shape")
def _reshape(site: Site) -> Call:
    """0 keeps a dimension as it is, unless `allowzero` makes it one without elements."""
    tf = site.tf
    given = site.integers(1) if site.has(1) else site.ints("shape", ())
    shape = list(given or ())
    if 0 in shape and not site.get("allowzero", 0):
        known = site.shape()
        shape = [known[place] if n == 0 else n for place, n in enumerate(shape)]
    return lambda x, *_: tf.reshape(x, shape)


@TABLE.add("Flatten", attributes="axis")
def _flatten(site: Site) -> Call:
    tf, shape, axis = site.tf, site.shape(), site.axis(site.get("axis", 1))
    target = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    return lambda x: tf.reshape(x, target)


@TABLE.add("Squeeze", attributes="axes")
def _squeeze(site: Site) -> Call:
    tf = site.tf
    axes = site.integers(1) if site.has(1) else site.ints("axes", ())
    return lambda x, *_: tf.squeeze(x, axes or None)


@TABLE.add("Unsqueeze", attributes="axes")
def _unsqueeze(site: Site) -> Call:
    """Negative axes count in the result."""
    tf = site.tf
    axes = (site.integers(1) if site.has(1) else site.ints("axes", ())) or ()
    if len(axes) == 1:
        (axis,) = axes
        return lambda x, *_: tf.expand_dims(x, axis)
    rank = site.rank() + len(axes)
    places = {axis % rank for axis in axes}
    rest = iter(site.shape())
    shape = [1 if n in places else next(rest) for n in range(rank)]
    return lambda x, *_: tf.reshape(x, shape)


@TABLE.add("Transpose", attributes="perm")
def _transpose(site: Site) -> Call:
    tf = site.tf
    order = site.ints("perm", tuple(reversed(range(site.rank()))))
    return lambda x: tf.transpose(x, order)


@TABLE.add("Concat", attributes="axis")
def _concat(site: Site) -> Call:
    tf, axis = site.tf, int(site.get("axis", 1))
    return lambda *tensors: tf.concat(tensors, axis)


@TABLE.add("Split", attributes="axis num_outputs split")
def _split(site: Site) -> Call:
    """In equal parts, the last one smaller where they do not come out even, or in those asked for."""
    tf, axis = site.tf, site.axis(site.get("axis", 0))
    sizes = site.integers(1) if site.has(1) else site.ints("split", ())
    if not sizes:
        whole, count = site.shape()[axis], int(site.get("num_outputs", len(site.node.outputs)))
        each = -(-whole // count)
        sizes = (*(each for _ in range(count - 1)), whole - each * (count - 1))
    return lambda x, *_: tuple(tf.split(x, sizes, axis))


@TABLE.add("Slice", attributes="axes ends starts")
def _slice(site: Site) -> Call:
    """Attributes before opset 10, inputs since. Bounds are clamped as Python does."""
    shape = site.shape()
    starts = site.integers(1) if site.has(1) else site.ints("starts", ())
    ends = site.integers(2) if site.has(2) else site.ints("ends", ())
    axes = (site.integers(3) if site.has(3) else site.ints("axes", ())) or range(len(starts or ()))
    steps = site.integers(4) or (1,) * len(starts or ())
    parts = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts or (), ends or (), axes, steps, strict=True):
        low, high, stride = slice(start, end, step).indices(shape[axis])
        parts[axis] = slice(low, None if high < 0 else high, stride)
    index = tuple(parts)
    return lambda x, *_: x[index]


@TABLE.add("Expand")
def _expand(site: Site) -> Call:
    """Both ways: a dimension of 1 in the asked shape keeps the tensor's own."""
    tf = site.tf
    shape = np.broadcast_shapes(site.shape(), site.integers(1) or ())
    return lambda x, _: tf.broadcast_to(x, shape)


@TABLE.add("Tile")
def _tile(site: Site) -> Call:
    tf, repeats = site.tf, site.integers(1)
    return lambda x, _: tf.tile(x, repeats)


@TABLE.add("Shape", attributes="end start")
def _shape(site: Site) -> Call:
    tf, start, end = site.tf, site.get("start", 0), site.get("end")
    if start == 0 and end is None:
        return lambda x: tf.shape(x, tf.int64)
    low, high, _ = slice(start, end).indices(site.rank())
    return lambda x: tf.shape(x, tf.int64)[low : max(low, high)]


@TABLE.add("Size")
def _size(site: Site) -> Call:
    tf = site.tf
    return lambda x: tf.size(x, tf.int64)


@TABLE.add("Pad", attributes="mode pads paddings value")
def _pad(site: Site) -> Call:
    """Negative numbers cut off; `edge` and `wrap`, which `tf.pad` has not, pick elements by their index."""
    mode = site.get("mode", "constant")
    shape = site.shape()
    pads = site.integers(1) or site.ints("pads", site.ints("paddings", ()))
    axes = [site.axis(axis) for axis in site.integers(3) or range(len(shape))]
    wanted = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    cut = tuple(
        slice(max(-begin, 0), n - max(-end, 0))
        for n, (begin, end) in ((n, wanted.get(axis, (0, 0))) for axis, n in enumerate(shape))
    )
    added = [[max(n, 0) for n in wanted.get(axis, (0, 0))] for axis in range(len(shape))]
    left = [part.stop - part.start for part in cut]
    inner = _padded(site, mode, added, left)
    if left == list(shape):
        return inner
    return lambda x, *rest: inner(x[cut], *rest)


def _padded(site: Site, mode: str, added: list[list[int]], sizes: list[int]) -> Call:
    tf = site.tf
    if mode == "constant":
        if site.has(2):
            return lambda x, _, value, *__: tf.pad(x, added, constant_values=tf.reshape(value, ()))
        value = site.real("value", 0)
        return lambda x, *_: tf.pad(x, added, constant_values=tf.cast(value, x.dtype))
    if mode == "reflect" and all(max(pair) < n for pair, n in zip(added, sizes, strict=True)):
        return lambda x, *_: tf.pad(x, added, "REFLECT")
    if mode not in ("reflect", "edge", "wrap"):
        raise site.refusal(f"no mode {mode!r}")
    picked = [
        (axis, np.pad(np.arange(n), pair, mode=mode))  # type: ignore[call-overload]
        for axis, (n, pair) in enumerate(zip(sizes, added, strict=True))
        if any(pair)
    ]

    def call(x: Any, *_: Any) -> Any:
        for axis, indices in picked:
            x = tf.gather(x, indices, axis=axis)
        return x

    return call


@TABLE.add("CenterCropPad", attributes="axes")
def _center_crop_pad(site: Site) -> Call:
    """Cut to, or padded with zeros to, a size around the middle; an odd one goes to the end."""
    tf, shape = site.tf, site.shape()
    axes = [site.axis(axis) for axis in site.ints("axes", range(len(shape)))]
    cut, pads = [slice(None)] * len(shape), [[0, 0] for _ in shape]
    for axis, size in zip(axes, site.integers(1) or (), strict=True):
        extra = size - shape[axis]
        if extra < 0:
            cut[axis] = slice(-extra // 2, -extra // 2 + size)
        else:
            pads[axis] = [extra // 2, extra - extra // 2]
    index = tuple(cut)
    return lambda x, _: tf.pad(x[index], pads)


@TABLE.add("DepthToSpace", attributes="blocksize mode")
def _depth_to_space(site: Site) -> Call:
    """Mode DCR is TensorFlow's own order of the channels; CRD is not."""
    tf, block, data = site.tf, int(site.get("blocksize")), spatial.data(site)
    mode = site.get("mode", "DCR")
    if mode == "DCR":
        return spatial.in_own_layout(site, 2, lambda x: tf.nn.depth_to_space(x, block))
    if mode != "CRD" or site.channels_last:
        raise site.refusal(f"no mode {mode!r}")
    (height, width), maps = data.size, data.channels // block**2
    split = (data.batch, maps, block, block, height, width)
    target = (data.batch, maps, height * block, width * block)
    return lambda x: tf.reshape(tf.transpose(tf.reshape(x, split), (0, 1, 4, 2, 5, 3)), target)


@TABLE.add("SpaceToDepth", attributes="blocksize mode")
def _space_to_depth(site: Site) -> Call:
    tf, block = site.tf, int(site.get("blocksize"))
    if site.get("mode", "DCR") != "DCR":
        raise site.refusal(f"no mode {site.get('mode')!r}")
    return spatial.in_own_layout(site, 2, lambda x: tf.nn.space_to_depth(x, block))


@TABLE.add("ReverseSequence", attributes="batch_axis time_axis")
def _reverse_sequence(site: Site) -> Call:
    tf, time, batch = site.tf, int(site.get("time_axis", 0)), int(site.get("batch_axis", 1))
    return lambda x, lengths: tf.reverse_sequence(x, lengths, seq_axis=time, batch_axis=batch)


@TABLE.add("Trilu", attributes="upper")
def _trilu(site: Site) -> Call:
    """`band_part` where the diagonal asked for is one that it can name, else a fixed mask."""
    tf, upper = site.tf, bool(site.get("upper", 1))
    (k,) = site.integers(1) or (0,)
    if upper and k <= 0:
        return lambda x, *_: tf.linalg.band_part(x, -k, -1)
    if not upper and k >= 0:
        return lambda x, *_: tf.linalg.band_part(x, -1, k)
    rows, columns = site.shape()[-2:]
    ones = np.ones((rows, columns), bool)
    kept = np.triu(ones, k) if upper else np.tril(ones, k)
    return lambda x, *_: tf.where(kept, x, tf.zeros_like(x))


@TABLE.add("Range", attributes="stash_type")
def _range(site: Site) -> Call:
    """How long the result is depends on the values, which XLA has to know beforehand.

    Steps away from the limit are nothing to ONNX and an error to `tf.range`.
    """
    tf = site.tf
    if not site.xla:
        return lambda start, limit, step: tf.range(
            start, tf.where(step < 0, tf.minimum(start, limit), tf.maximum(start, limit)), step
        )
    start, limit, step = (value.item() for n in range(3) if (value := site.parameter(n)) is not None)
    reached = min(start, limit) if step < 0 else max(start, limit)
    return lambda *_: tf.range(start, reached, step, dtype=site.dtype())
