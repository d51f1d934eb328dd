"""Resize: TensorFlow's image functions where they sample at the same places, else gathered neighbours.

Where each output element looks is decided once, in float64, from the sizes alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from matrix_adapters.operators import tensorflow_spatial as spatial
from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

_HALVES = ("float16", "bfloat16")

#: nearest_mode -> the element for a place
_ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One dimension that changes: its place, its sizes, the scale, the part of it that is looked at."""

    axis: int
    size: int
    out: int
    scale: float
    roi: tuple[float, float]


@TABLE.add(
    "Resize", "Upsample",
    attributes="antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside "
    "extrapolation_value keep_aspect_ratio_policy mode nearest_mode scales",
)  # fmt: skip
def _resize(site: Site) -> Call:
    mode = site.get("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise site.refusal(f"no mode {mode!r}")
    axes = _axes(site)
    if own := _own(site, mode, axes):
        return own
    if mode == "nearest":
        return _nearest(site, axes)
    if "int" in site.dtype() or site.dtype() == "bool":
        raise site.refusal(f"mode {mode!r} with {site.dtype()}")
    return _weighted(site, mode, axes)


def _axes(site: Site) -> list[Axis]:
    """The dimensions that change, from scales or sizes, whichever is there."""
    shape = site.shape()
    axes = [spatial.place(site, axis) for axis in site.ints("axes", range(len(shape)))]
    old = site.opset < 11 or site.node.op == "Upsample"
    roi = None if old else site.parameter(1)
    scales = site.parameter(1 if old else 2)
    if scales is None and site.get("scales"):
        scales = np.array(site.get("scales"), np.float32)
    sizes = None if old else site.integers(3)
    if sizes:
        out, factors = _from_sizes(site, [shape[axis] for axis in axes], sizes)
    elif scales is not None and scales.size:
        factors = [float(s) for s in scales]
        # The product is taken in the scales' own float32: 3 * (1/3) has to be 1.
        single = np.asarray(scales, np.float32) * np.array([shape[axis] for axis in axes], np.float32)
        out = [math.floor(n) for n in single]
    else:
        raise site.refusal("neither scales nor sizes")
    area = np.array([[0.0] * len(axes), [1.0] * len(axes)])
    if roi is not None and roi.size:
        area = roi.reshape(2, -1)
    crop = _coordinates(site) == "tf_crop_and_resize"
    found = [
        Axis(axis=axis, size=shape[axis], out=o, scale=f, roi=(float(a[0]), float(a[1])))
        for axis, o, f, a in zip(axes, out, factors, area.T, strict=True)
    ]
    return [one for one in found if one.out != one.size or one.scale != 1 or (crop and one.roi != (0, 1))]


def _from_sizes(site: Site, shape: list[int], sizes: tuple[int, ...]) -> tuple[list[int], list[float]]:
    factors = [s / n for s, n in zip(sizes, shape, strict=True)]
    policy = site.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return list(sizes), factors
    if policy not in ("not_larger", "not_smaller"):
        raise site.refusal(f"no keep_aspect_ratio_policy {policy!r}")
    scale = min(factors) if policy == "not_larger" else max(factors)
    return [int(scale * n + 0.5) for n in shape], [scale] * len(shape)


def _coordinates(site: Site) -> str:
    old = site.opset < 11 or site.node.op == "Upsample"
    word: str = site.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    return word


def _places(site: Site, one: Axis) -> np.ndarray:
    """Where in the input each output element lies, in elements; float64."""
    mode, y = _coordinates(site), np.arange(one.out, dtype=np.float64)
    single = one.out == 1
    if mode == "asymmetric":
        return y / one.scale
    if mode == "align_corners":
        return y * 0 if single else y * ((one.size - 1) / (one.out - 1))
    if mode == "tf_crop_and_resize":
        start, stop = one.roi
        reach = (stop - start) * (one.size - 1)
        inside = y * 0 + reach / 2 if single else y * (reach / (one.out - 1))
        return start * (one.size - 1) + inside
    if mode == "pytorch_half_pixel" and single:
        return y * 0
    centred: np.ndarray = (y + 0.5) / one.scale - 0.5
    if mode == "half_pixel_symmetric":
        return centred + one.size / 2 * (1 - one.out / (one.scale * one.size))
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise site.refusal(f"no coordinate_transformation_mode {mode!r}")
    return centred


def _own(site: Site, mode: str, axes: list[Axis]) -> Call | None:
    """One of TensorFlow's own kernels for images, if it looks at the same places."""
    tf = site.tf
    if site.rank() != 4 or not axes or site.get("antialias", 0) or mode == "cubic":
        return None
    if _coordinates(site) == "tf_crop_and_resize" or site.get("exclude_outside", 0):
        return None
    planes = (1, 2) if site.channels_last else (2, 3)
    if any(one.axis not in planes for one in axes):
        return None
    sizes = [next((one.out for one in axes if one.axis == p), site.shape()[p]) for p in planes]
    wanted = [_indices(site, one) if mode == "nearest" else _places(site, one) for one in axes]
    # float64 would come back as float32, whole numbers as fractions.
    if mode == "linear" and site.dtype() not in ("float32", *_HALVES):
        return None
    raw = tf.raw_ops.ResizeNearestNeighbor if mode == "nearest" else tf.raw_ops.ResizeBilinear
    for corners, centres in ((False, True), (False, False), (True, False)):
        offered = [_offered(mode, one, corners, centres) for one in axes]
        if all(np.allclose(a, b, rtol=0, atol=1e-6) for a, b in zip(wanted, offered, strict=True)):
            break
    else:
        return None

    def image(x: Any) -> Any:
        y = raw(images=x, size=sizes, align_corners=corners, half_pixel_centers=centres)
        return y if y.dtype == x.dtype else tf.cast(y, x.dtype)

    core = spatial.in_own_layout(site, 2, image)
    return lambda x, *_: core(x)


def _offered(mode: str, one: Axis, corners: bool, centres: bool) -> np.ndarray:
    """Where that kernel looks (its arithmetic is float32): an element, or a place between two."""
    y = np.arange(one.out, dtype=np.float32)
    if corners and one.out > 1:
        step = np.float32(one.size - 1) / np.float32(one.out - 1)
    else:
        step = np.float32(one.size) / np.float32(one.out)
    if mode == "linear":
        between: np.ndarray = (y + np.float32(0.5)) * step - np.float32(0.5) if centres else y * step
        return between
    found = (y + np.float32(0.5)) * step if centres else y * step
    whole = np.floor(found + np.float32(0.5)) if corners else np.floor(found)
    chosen: np.ndarray = np.clip(whole, 0, one.size - 1).astype(np.int64)
    return chosen


def _indices(site: Site, one: Axis) -> np.ndarray:
    """The nearest element, by the rule for ties."""
    places, rule = _places(site, one), site.get("nearest_mode", "round_prefer_floor")
    if site.opset < 11 or site.node.op == "Upsample":
        rule = "floor"
    if rule not in _ROUNDED:
        raise site.refusal(f"no nearest_mode {rule!r}")
    chosen: np.ndarray = np.clip(_ROUNDED[rule](places), 0, one.size - 1).astype(np.int64)
    return chosen


def _nearest(site: Site, axes: list[Axis]) -> Call:
    tf = site.tf
    picked = [(one, _indices(site, one), _outside(site, one)) for one in axes]

    def call(x: Any, *_: Any) -> Any:
        for one, indices, outside in picked:
            x = _where_inside(site, tf.gather(x, indices, axis=one.axis), one, outside)
        return tf.identity(x) if not picked else x

    return call


def _weighted(site: Site, mode: str, axes: list[Axis]) -> Call:
    """Axis by axis: gather the neighbours of each place, and sum them by weight."""
    tf, dtype = site.tf, site.dtype()
    wide = "float32" if dtype in _HALVES else dtype
    prepared = []
    for one in axes:
        neighbours, weights = _neighbours(site, mode, one)
        tail = (1,) * (site.rank() - one.axis - 1)
        constant = tf.constant(weights.reshape(*weights.shape, *tail), wide)
        prepared.append((one, neighbours, constant, _outside(site, one)))

    def call(x: Any, *_: Any) -> Any:
        x = x if wide == dtype else tf.cast(x, wide)
        for one, neighbours, weights, outside in prepared:
            gathered = tf.gather(x, neighbours, axis=one.axis)
            x = _where_inside(site, tf.reduce_sum(gathered * weights, one.axis + 1), one, outside)
        return tf.cast(x, dtype)

    return call


def _neighbours(site: Site, mode: str, one: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights, both [out, n]. Beyond an edge lies the edge's own element."""
    places = _places(site, one)
    # A place that is an element's own counts as the end of the interval before it.
    below = np.ceil(places) - 1
    ratio = places - below
    stretch = min(one.scale, 1.0) if site.get("antialias", 0) else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / stretch)
    steps = np.arange(1 - reach, reach + 1)
    distance = np.abs(steps - ratio[:, np.newaxis]) * stretch
    if mode == "linear":
        weights = np.maximum(1 - distance, 0)
    else:
        weights = _cubic(distance, site.real("cubic_coeff_a", -0.75))
    indices = (below[:, np.newaxis] + steps).astype(np.int64)
    if site.get("exclude_outside", 0):
        weights = np.where((indices < 0) | (indices >= one.size), 0.0, weights)
    if site.get("exclude_outside", 0) or stretch < 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(indices, 0, one.size - 1), weights


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel at distances x >= 0 (R. Keys, 1981)."""
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    found: np.ndarray = np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))
    return found


def _outside(site: Site, one: Axis) -> np.ndarray | None:
    """Which output elements look beyond the input, where those get a value of their own."""
    if _coordinates(site) != "tf_crop_and_resize":
        return None
    places = _places(site, one)
    outside: np.ndarray = (places < 0) | (places > one.size - 1)
    return outside if outside.any() else None


def _where_inside(site: Site, y: Any, one: Axis, outside: np.ndarray | None) -> Any:
    if outside is None:
        return y
    tf, value = site.tf, site.real("extrapolation_value", 0.0)
    mask = outside.reshape(-1, *(1 for _ in range(site.rank() - one.axis - 1)))
    return tf.where(mask, tf.cast(value, y.dtype), y)
