"""What samples images at given places, adds patches back into one, or picks boxes."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

_OLD_NAMES = {"bilinear": "linear", "bicubic": "cubic"}
_CUBIC_A = -0.75


@TABLE.add("AffineGrid", attributes="align_corners")
def _affine_grid(site: Site) -> Call:
    """The transformed places of a regular grid, x before y before z, from -1 to 1."""
    tf, dtype = site.tf, site.dtype()
    batch, _, *sizes = site.integers(1) or ()
    corners = bool(site.get("align_corners", 0))
    lines = [np.linspace(-1, 1, n) if corners else (2 * np.arange(n) + 1) / n - 1 for n in sizes]
    mesh = np.meshgrid(*lines, indexing="ij")
    places = np.stack([*(axis.reshape(-1) for axis in reversed(mesh)), np.ones(math.prod(sizes))])
    regular, target = tf.constant(places, dtype), (batch, *sizes, len(sizes))

    def call(theta: Any, _: Any) -> Any:
        return tf.reshape(tf.transpose(tf.linalg.matmul(theta, regular), (0, 2, 1)), target)

    return call


@TABLE.add("GridSample", attributes="align_corners mode padding_mode")
def _grid_sample(site: Site) -> Call:
    """Each output is a sum over the elements around its place, by weight, one factor an axis."""
    tf, shape = site.tf, site.shape()
    rank = len(shape) - 2
    mode = str(site.get("mode", "linear" if site.opset >= 20 else "bilinear"))
    mode, padding = _OLD_NAMES.get(mode, mode), site.get("padding_mode", "zeros")
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise site.refusal(f"mode {mode!r} with padding {padding!r}")
    corners = bool(site.get("align_corners", 0))
    to_last, to_first = (0, *range(2, rank + 2), 1), (0, rank + 1, *range(1, rank + 1))
    wide = "float64" if site.dtype() == "float64" else "float32"

    def call(x: Any, grid: Any) -> Any:
        grid, images = tf.cast(grid, wide), tf.cast(tf.transpose(x, to_last), wide)
        # The grid names the last axis first.
        axes = [
            _taps(tf, grid[..., rank - 1 - n], shape[2 + n], (mode, padding, corners)) for n in range(rank)
        ]
        parts = []
        for taps in itertools.product(*axes):
            weight = functools.reduce(tf.multiply, [weight for _, weight in taps])
            found = tf.gather_nd(images, tf.stack([index for index, _ in taps], -1), batch_dims=1)
            parts.append(found * weight[..., tf.newaxis])
        return tf.cast(tf.transpose(tf.add_n(parts), to_first), x.dtype)

    return call


def _taps(tf: Any, at: Any, size: int, words: tuple[str, str, bool]) -> list[tuple[Any, Any]]:
    """(index, weight) of every element that counts along an axis of `size`, for coordinates from -1 to 1."""
    mode, padding, corners = words
    place = (at + 1) / 2 * (size - 1) if corners else ((at + 1) * size - 1) / 2
    if mode != "cubic":  # of which every element is moved inside by itself
        place = _moved(tf, place, size, padding, corners)
    if mode == "nearest":
        return [_inside(tf, tf.round(place), tf.ones_like(place), size)]
    below = tf.floor(place)
    if mode == "linear":
        return [_inside(tf, below + n, 1 - tf.abs(place - below - n), size) for n in (0, 1)]
    weights = [_cubic(tf, tf.abs(place - below - n), inner=n in (0, 1)) for n in (-1, 0, 1, 2)]
    indices = [_moved(tf, below + n, size, padding, corners) for n in (-1, 0, 1, 2)]
    return [_inside(tf, index, weight, size) for index, weight in zip(indices, weights, strict=True)]


def _moved(tf: Any, place: Any, size: int, padding: str, corners: bool) -> Any:
    """A place beyond the edge: left there (zeros), at the edge, or reflected as often as it takes."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        if span == 0:
            return tf.zeros_like(place)
        offset = tf.math.floormod(tf.abs(place - low), 2 * span)
        place = low + tf.minimum(offset, 2 * span - offset)
    return tf.clip_by_value(place, 0.0, size - 1.0)


def _inside(tf: Any, index: Any, weight: Any, size: int) -> tuple[Any, Any]:
    """What lies outside is an element with no weight."""
    outside = tf.logical_or(index < 0, index > size - 1)
    weight = tf.where(outside, tf.zeros_like(weight), weight)
    return tf.cast(tf.clip_by_value(index, 0.0, size - 1.0), "int32"), weight


def _cubic(tf: Any, d: Any, *, inner: bool) -> Any:
    """Keys' cubic convolution kernel (R. Keys, 1981) at distances up to 1, or from 1 to 2."""
    a = _CUBIC_A
    return ((a + 2) * d - (a + 3)) * d * d + 1 if inner else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


@TABLE.add("Col2Im", attributes="dilations pads strides")
def _col2im(site: Site) -> Call:
    """Patches added into an image: every element has a place, those in the padding a place of their own."""
    tf, (batch, rows, _) = site.tf, site.shape()
    image, block = site.integers(1) or (), site.integers(2) or ()
    rank = len(image)
    dilations, strides = site.ints("dilations", (1,) * rank), site.ints("strides", (1,) * rank)
    pads = site.ints("pads", (0,) * (2 * rank))
    along = []  # per axis [block, windows]: where each element of each window lies
    for n in range(rank):
        reach = (block[n] - 1) * dilations[n] + 1
        windows = (image[n] + pads[n] + pads[rank + n] - reach) // strides[n] + 1
        starts = np.arange(windows) * strides[n] - pads[n]
        along.append(np.arange(block[n])[:, np.newaxis] * dilations[n] + starts)
    total, channels = math.prod(image), rows // math.prod(block)
    places = np.zeros((1, 1), np.int64)
    for n, line in enumerate(along):
        inside = np.where((line >= 0) & (line < image[n]), line, -total)
        places = (places[:, np.newaxis, :, np.newaxis] * image[n] + inside[:, np.newaxis, :]).reshape(
            places.shape[0] * line.shape[0], -1
        )
    indices = np.where(places < 0, total, places).reshape(-1, 1)

    def call(x: Any, *_: Any) -> Any:
        patches = tf.transpose(tf.reshape(x, (batch * channels, -1)))
        added = tf.scatter_nd(indices, patches, (total + 1, batch * channels))
        return tf.reshape(tf.transpose(added[:total]), (batch, channels, *image))

    return call


@TABLE.add("NonMaxSuppression", attributes="center_point_box")
def _non_max_suppression(site: Site) -> Call:
    """For each image and class, best first: rows of image, class, box."""
    tf, (images, classes, _) = site.tf, site.shape(1)
    centred = bool(site.get("center_point_box", 0))

    def call(boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None) -> Any:
        if most is None:
            return tf.zeros((0, 3), "int64")
        if centred:
            middle, half = boxes[..., :2], boxes[..., 2:] / 2
            boxes = tf.concat([middle - half, middle + half], -1)
        limits = (
            tf.cast(tf.reshape(most, ()), "int32"),
            0.0 if overlap is None else tf.reshape(overlap, ()),
            float("-inf") if least is None else tf.reshape(least, ()),
        )
        rows = []
        for image, kind in itertools.product(range(images), range(classes)):
            found = tf.image.non_max_suppression(boxes[image], scores[image, kind], *limits)
            found = tf.cast(found[:, tf.newaxis], "int64")
            rows.append(tf.pad(found, [[0, 0], [2, 0]]) + tf.constant([image, kind, 0], "int64"))
        return tf.concat(rows, 0)

    return call
