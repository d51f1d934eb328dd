"""Resize in all its modes, one axis after the other. Formulas: Resize in ONNX's Operators.md.

The evaluator (onnx 1.23) takes -0.5 for a single output in pytorch_half_pixel, where the text
says 0, and a scaled size that is no whole number where the text says the size that comes out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from onnx import numpy_helper

from matrix_adapters.operators.oracle_op import Array, Definition, wide


@dataclasses.dataclass(frozen=True, slots=True)
class Taps:
    """For every output along an axis: which inputs it is made of, and their weights; [outputs, taps]."""

    index: Array  # may lie outside: the edge is repeated there
    weight: Array


class Resize(Definition):
    """Opset 10 has (X, scales) and no modes but nearest and linear; later ones (X, roi, scales, sizes)."""

    def _run(
        self,
        x: Array,
        second: Array | None = None,
        scales: Array | None = None,
        sizes: Array | None = None,
        *,
        antialias: int = 0,
        axes: list[int] | None = None,
        coordinate_transformation_mode: str = "half_pixel",
        cubic_coeff_a: float = -0.75,
        exclude_outside: int = 0,
        extrapolation_value: float = 0.0,
        keep_aspect_ratio_policy: str = "stretch",
        mode: str = "nearest",
        nearest_mode: str = "round_prefer_floor",
    ) -> tuple[Array]:
        roi = second
        if self.since == 10:
            roi, scales = None, second
            coordinate_transformation_mode, nearest_mode = "asymmetric", "floor"
        over = [axis % x.ndim for axis in (range(x.ndim) if axes is None else axes)]
        old = [x.shape[axis] for axis in over]
        factors, new = _factors(old, scales, sizes, keep_aspect_ratio_policy)
        y: Array = wide(x)
        outside: Array = np.zeros((1,) * x.ndim, bool)
        for i, axis in enumerate(over):
            begin, end = (0.0, 1.0) if roi is None or not roi.size else (roi[i], roi[len(over) + i])
            whole = (float(begin), float(end)) == (0.0, 1.0) or "crop" not in coordinate_transformation_mode
            if new[i] == old[i] and factors[i] == 1.0 and whole:
                continue
            place = _places(
                coordinate_transformation_mode, old[i], new[i], factors[i], (float(begin), float(end))
            )
            taps = _taps(
                mode, place, factors[i], nearest=nearest_mode, a=cubic_coeff_a, antialias=bool(antialias)
            )
            y = _apply(y, axis, taps, exclude=bool(exclude_outside) and mode != "nearest")
            if coordinate_transformation_mode == "tf_crop_and_resize":
                beyond = (place < 0) | (place > old[i] - 1)
                outside = outside | beyond.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
        return (numpy_helper.saturate_cast(np.where(outside, extrapolation_value, y), x.dtype),)


def _factors(
    old: Sequence[int], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[float], list[int]]:
    """Scale and new size of every axis."""
    if sizes is None or not sizes.size:
        if scales is None or not scales.size:
            raise ValueError("Resize needs scales or sizes")
        factors = [float(scale) for scale in scales]
        return factors, [math.floor(n * scale) for n, scale in zip(old, factors, strict=True)]
    factors = [int(size) / n if n else 1.0 for size, n in zip(sizes, old, strict=True)]
    if policy == "stretch":
        return factors, [int(size) for size in sizes]
    one = min(factors) if policy == "not_larger" else max(factors)
    return [one] * len(old), [math.floor(one * n + 0.5) for n in old]


def _places(mode: str, old: int, new: int, scale: float, roi: tuple[float, float]) -> Array:
    """Where in the input every output lies, float64[new]."""
    x = np.arange(new, dtype=np.float64)
    begin, end = roi
    match mode:
        case "half_pixel":
            return (x + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            offset = old / 2 * (1 - new / (scale * old))
            return offset + (x + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if new > 1 else np.zeros(new)
        case "align_corners":
            return x * (old - 1) / (new - 1) if new > 1 else np.zeros(new)
        case "asymmetric":
            return x / scale
        case "tf_crop_and_resize":
            if new > 1:
                return begin * (old - 1) + x * (end - begin) * (old - 1) / (new - 1)
            return np.full(new, 0.5 * (begin + end) * (old - 1))
    raise ValueError(f"no coordinate_transformation_mode {mode!r}")


def _taps(mode: str, place: Array, scale: float, *, nearest: str, a: float, antialias: bool) -> Taps:
    if mode == "nearest":
        chosen = {
            "round_prefer_floor": np.ceil(place - 0.5),
            "round_prefer_ceil": np.floor(place + 0.5),
            "floor": np.floor(place),
            "ceil": np.ceil(place),
        }[nearest]
        return Taps(chosen.astype(np.int64)[:, None], np.ones((len(place), 1)))
    if mode not in ("linear", "cubic"):
        raise ValueError(f"no mode {mode!r}")
    shrink = min(scale, 1.0) if antialias else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / shrink)
    index = np.floor(place).astype(np.int64)[:, None] + np.arange(-reach, reach + 2)
    distance = np.abs(index - place[:, None]) * shrink
    weight = np.maximum(1 - distance, 0) if mode == "linear" else cubic(distance, a)
    return Taps(index, weight / weight.sum(axis=1, keepdims=True))


def cubic(distance: Array, a: float) -> Array:
    """Keys' convolution kernel with parameter `a` (IEEE Trans. ASSP 29(6), 1981); zero from 2 on."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _apply(x: Array, axis: int, taps: Taps, *, exclude: bool) -> Array:
    """A weight of 0 takes nothing, not even from a NaN."""
    size = x.shape[axis]
    weight = taps.weight
    if exclude:
        weight = np.where((taps.index < 0) | (taps.index >= size), 0.0, weight)
        weight = weight / weight.sum(axis=1, keepdims=True)
    seen = np.take(x, np.clip(taps.index, 0, size - 1), axis=axis)
    shape = [*[1] * axis, *weight.shape, *[1] * (x.ndim - axis - 1)]
    weight = weight.reshape(shape)
    return np.asarray(np.where(weight == 0, 0.0, seen * weight).sum(axis=axis + 1))


OPERATORS = (Resize,)
