"""Pooling over windows and over everything."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from matrix_adapters.operators import tensorflow_spatial as spatial
from matrix_adapters.operators.tensorflow_site import Call, Site, Table
from matrix_adapters.operators.tensorflow_spatial import Window

TABLE = Table()


@TABLE.add("GlobalAveragePool", "GlobalMaxPool")
def _global(site: Site) -> Call:
    tf, axes = site.tf, _spatial_axes(site)
    reduce = tf.reduce_max if site.node.op == "GlobalMaxPool" else tf.reduce_mean
    return lambda x: reduce(x, axes, keepdims=True)


@TABLE.add("GlobalLpPool", attributes="p")
def _global_lp(site: Site) -> Call:
    tf, axes, p = site.tf, _spatial_axes(site), site.get("p", 2)
    return _root(tf, p, lambda powers: tf.reduce_sum(powers, axes, keepdims=True))


@TABLE.add("MaxPool", attributes=f"{spatial.WINDOW} ceil_mode storage_order")
def _max_pool(site: Site) -> Call:
    window, rank = _window(site)
    if site.wants(1):
        return _with_indices(site, window)
    tf, low = site.tf, _lowest(site)
    return spatial.in_own_layout(site, rank, _pooled(tf, "MAX", window, low, explicit=not site.xla))


@TABLE.add("AveragePool", attributes=f"{spatial.WINDOW} ceil_mode count_include_pad")
def _average_pool(site: Site) -> Call:
    window, rank = _window(site)
    tf, average = site.tf, _pooled(site.tf, "AVG", window, 0)
    if not window.padded:
        return spatial.in_own_layout(site, rank, average)
    counted = _counts(window, spatial.data(site).size, padding=bool(site.get("count_include_pad", 0)))
    # The kernel divides by the whole window, zeros included.
    correction = math.prod(window.kernel) / counted
    if (correction == 1).all():
        return spatial.in_own_layout(site, rank, average)
    factors = tf.constant(correction[np.newaxis, ..., np.newaxis], site.dtype())
    return spatial.in_own_layout(site, rank, lambda x: average(x) * factors)


@TABLE.add("LpPool", attributes=f"{spatial.WINDOW} ceil_mode p")
def _lp_pool(site: Site) -> Call:
    window, rank = _window(site)
    tf, size = site.tf, math.prod(window.kernel)
    average = _pooled(tf, "AVG", window, 0)
    core = _root(tf, site.get("p", 2), lambda powers: average(powers) * size)
    return spatial.in_own_layout(site, rank, core)


@TABLE.add("MaxUnpool", attributes="kernel_shape pads strides")
def _max_unpool(site: Site) -> Call:
    """Each value back to where it came from, by its index into the whole flattened tensor."""
    tf, data = site.tf, spatial.data(site)
    kernel = site.ints("kernel_shape", ())
    strides, pads = site.ints("strides", (1,) * data.rank), site.ints("pads", (0,) * (2 * data.rank))
    ends = zip(pads[: data.rank], pads[data.rank :], strict=True)
    size = tuple(
        (n - 1) * s - b - e + k for n, s, k, (b, e) in zip(data.size, strides, kernel, ends, strict=True)
    )
    shape = (data.batch, data.channels, *size)
    given = site.integers(2)
    if given is not None and given != shape:
        # Indices count in the smaller tensor; they are spread over the larger one.
        raise site.refusal(f"an output_shape {list(given)} other than {list(shape)}")
    total = math.prod(shape)

    def call(x: Any, indices: Any, *_: Any) -> Any:
        flat = tf.scatter_nd(tf.reshape(indices, (-1, 1)), tf.reshape(x, (-1,)), (total,))
        return tf.reshape(flat, shape)

    return call


def _window(site: Site) -> tuple[Window, int]:
    data = spatial.data(site)
    kernel = site.ints("kernel_shape", ())
    if len(kernel) != data.rank:
        raise site.refusal(f"kernel_shape {list(kernel)} for {data.rank} spatial dimensions")
    return spatial.window(site, kernel, data.size, ceil=bool(site.get("ceil_mode", 0))), data.rank


def _spatial_axes(site: Site) -> tuple[int, ...]:
    rank = spatial.data(site).rank
    return tuple(range(1, rank + 1)) if site.channels_last else tuple(range(2, rank + 2))


def _lowest(site: Site) -> Any:
    """What never wins against data of this type."""
    dtype = site.tf.as_dtype(site.dtype())
    return float("-inf") if dtype.is_floating else dtype.min


def _pooled(tf: Any, kind: str, window: Window, fill: Any, *, explicit: bool = False) -> Call:
    """A window's maximum or average (over the whole window, whatever lies in it), channels last."""
    rank, end = len(window.kernel), [e + x for e, x in zip(window.end, window.extra, strict=True)]
    pads = spatial.padding(window.begin, end)
    dilated = max(window.dilations) > 1
    if kind == "MAX" and explicit and rank == 2 and window.padded and not dilated:
        return lambda x: tf.nn.max_pool2d(x, window.kernel, window.strides, pads)
    if (dilated and max(window.strides) > 1) or rank > 3:
        core = _by_shifts(tf, kind, window)
    elif dilated:

        def core(x: Any) -> Any:
            return tf.nn.pool(x, window.kernel, kind, padding="VALID", dilations=window.dilations)
    else:
        name = "max_pool" if kind == "MAX" else "avg_pool"
        kernel = getattr(tf.nn, f"{name}{rank}d")

        def core(x: Any) -> Any:
            return kernel(x, window.kernel, window.strides, "VALID")

    if not window.padded:
        return core
    return lambda x: core(tf.pad(x, pads, constant_values=tf.constant(fill, x.dtype)))


def _by_shifts(tf: Any, kind: str, window: Window) -> Call:
    """The same as one strided slice for each element of the window (no kernel has strides and dilations)."""
    pair = tf.maximum if kind == "MAX" else tf.add
    size = math.prod(window.kernel)
    slices = [
        (slice(None), *_starts(offsets, window), slice(None))
        for offsets in itertools.product(*(range(k) for k in window.kernel))
    ]
    if kind == "MAX":
        return lambda x: functools.reduce(pair, [x[part] for part in slices])
    return lambda x: functools.reduce(pair, [x[part] for part in slices]) / size


def _starts(offsets: tuple[int, ...], window: Window) -> list[slice]:
    return [
        slice(o * d, o * d + (n - 1) * s + 1, s)
        for o, d, n, s in zip(offsets, window.dilations, window.out, window.strides, strict=True)
    ]


def _counts(window: Window, size: tuple[int, ...], *, padding: bool) -> np.ndarray:
    """How many elements of each window count: those of the data, or of the padded data; float64."""
    counts = np.ones((), np.float64)
    for axis, n in enumerate(size):
        begin, end = window.begin[axis], window.end[axis]
        low, high = (-begin, n + end) if padding else (0, n)
        starts = np.arange(window.out[axis])[:, np.newaxis] * window.strides[axis] - begin
        places = starts + np.arange(window.kernel[axis]) * window.dilations[axis]
        counted = ((places >= low) & (places < high)).sum(axis=1)
        counts = counts[..., np.newaxis] * counted
    return counts


def _root(tf: Any, p: float, summed: Call) -> Call:
    """The p-norm, by the shortest way for the usual ones."""
    if p == 1:
        return lambda x: summed(tf.abs(x))
    if p == 2:
        return lambda x: tf.sqrt(summed(tf.square(x)))
    return lambda x: tf.pow(summed(tf.pow(tf.abs(x), p)), 1 / p)


def _with_indices(site: Site, window: Window) -> Call:
    """Where each maximum was, as an index into the flattened N, C, H, W tensor.

    TensorFlow counts in the padded N, H, W, C tensor of one entry of the batch.
    """
    tf, data = site.tf, spatial.data(site)
    if data.rank > 2 or max(window.dilations) > 1 or site.channels_last:
        raise site.refusal("indices of maxima in three dimensions or with dilations")
    line = data.rank == 1
    height, width = (1, *data.size) if line else data.size
    kernel, strides, begin, end, extra = (
        (fill, *value) if line else value
        for value, fill in (
            (window.kernel, 1), (window.strides, 1), (window.begin, 0), (window.end, 0), (window.extra, 0),
        )
    )  # fmt: skip
    pads = spatial.padding(begin, [e + x for e, x in zip(end, extra, strict=True)])
    padded_width = width + sum(pads[2])
    low = tf.constant(_lowest(site), site.dtype())
    entries = np.arange(data.batch).reshape(-1, 1, 1, 1) * data.channels * height * width
    column_major = bool(site.get("storage_order", 0))

    def call(x: Any) -> tuple[Any, Any]:
        x = tf.transpose(x[:, :, tf.newaxis] if line else x, (0, 2, 3, 1))
        x = tf.pad(x, pads, constant_values=low) if window.padded else x
        values, found = tf.nn.max_pool_with_argmax(x, kernel, strides, "VALID")
        place, channel = found // data.channels, found % data.channels
        row, column = place // padded_width - begin[0], place % padded_width - begin[1]
        inside = column * height + row if column_major else row * width + column
        indices = entries + channel * (height * width) + inside
        values, indices = tf.transpose(values, (0, 3, 1, 2)), tf.transpose(indices, (0, 3, 1, 2))
        return (tf.squeeze(values, 2), tf.squeeze(indices, 2)) if line else (values, indices)

    return call
