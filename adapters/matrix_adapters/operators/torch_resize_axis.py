"""One axis of a Resize: which places of the input each output takes, and with which weights.

Formulas of Resize-19 in the ONNX specification; the cubic kernel is Keys' (1981). NumPy only:
all of it happens before the first call.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The attributes that all axes share."""

    mode: str
    coordinates: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """`size` elements become `made`; `scale` is what ONNX computes with. `crop`: start and end of a roi."""

    place: int
    size: int
    made: int
    scale: float
    crop: tuple[float, float] | None = None

    @property
    def changes(self) -> bool:
        return self.made != self.size or self.scale != 1 or self.crop not in (None, (0.0, 1.0))

    def cropped(self, roi: Sequence[float], axes: Sequence[int]) -> Axis:
        if self.place not in axes:
            return self
        i = list(axes).index(self.place)
        return dataclasses.replace(self, crop=(float(roi[i]), float(roi[len(axes) + i])))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Taps:
    """index: int64[made, taps]; weights: float64[made, taps], None for a single tap of weight 1."""

    index: npt.NDArray[np.int64]
    weights: Floats | None
    outside: npt.NDArray[np.bool_]  # [made]: takes the extrapolation value


def plan_axes(
    shape: Sequence[int],
    axes: Sequence[int],
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    policy: str,
) -> list[Axis]:
    """One entry an axis of the tensor; those not in `axes` stay as they are."""
    scale = [1.0] * len(shape)
    made = list(shape)
    if scales is not None:
        for axis, factor in zip(axes, scales, strict=True):
            scale[axis], made[axis] = float(factor), math.floor(shape[axis] * float(factor))
    else:
        for axis, size in zip(axes, sizes or (), strict=True):
            scale[axis], made[axis] = size / shape[axis] if shape[axis] else 1.0, size
        if policy != "stretch":
            one = (min if policy == "not_larger" else max)(scale[axis] for axis in axes)
            for axis in axes:
                scale[axis], made[axis] = one, math.floor(one * shape[axis] + 0.5)
    return [Axis(place=i, size=shape[i], made=made[i], scale=scale[i]) for i in range(len(shape))]


def places(rule: Rule, axis: Axis) -> Floats:
    """Where each output lies among the inputs, float64[made]."""
    y = np.arange(axis.made, dtype=np.float64)
    if rule.coordinates == "align_corners":
        return y * 0 if axis.made == 1 else y * (axis.size - 1) / (axis.made - 1)
    if rule.coordinates == "asymmetric":
        return y / axis.scale
    if rule.coordinates == "tf_crop_and_resize":
        start, end = axis.crop or (0.0, 1.0)
        if axis.made == 1:
            return y * 0 + 0.5 * (start + end) * (axis.size - 1)
        return start * (axis.size - 1) + y * (end - start) * (axis.size - 1) / (axis.made - 1)
    if rule.coordinates == "pytorch_half_pixel" and axis.made == 1:
        return y * 0
    half = (y + 0.5) / axis.scale - 0.5
    if rule.coordinates == "half_pixel_symmetric":
        return half + axis.size / 2 * (1 - axis.made / (axis.scale * axis.size))
    return half


def axis_taps(rule: Rule, axis: Axis) -> Taps:
    x = places(rule, axis)
    outside = np.zeros(axis.made, bool)
    if rule.coordinates == "tf_crop_and_resize":
        outside = (x < 0) | (x > axis.size - 1)
    if rule.mode == "nearest":
        index = np.clip(_rounded(x, rule.nearest), 0, axis.size - 1)
        return Taps(index=index[:, None], weights=None, outside=outside)
    index, weights = _weighed(rule, axis, x)
    inside = (index >= 0) & (index < axis.size)
    if rule.exclude_outside:
        weights = np.where(inside, weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
    return Taps(index=np.clip(index, 0, axis.size - 1), weights=weights, outside=outside)


def native(rule: Rule, axes: Sequence[Axis]) -> str | None:
    """How `torch.nn.functional.interpolate` says the same: a nearest mode, or "corners", "sizes", "scales".

    None where it cannot. Its linear and cubic modes place outputs at half pixels or with aligned
    corners, by the sizes or by the scales; they clamp at the edge as ONNX does.
    """
    if rule.antialias or rule.coordinates == "tf_crop_and_resize":
        return None
    if rule.mode == "nearest":
        for name, shift in (("nearest", 0.0), ("nearest-exact", 0.5)):
            if all(_same_nearest(rule, axis, shift) for axis in axes):
                return name
        return None
    if rule.exclude_outside or (rule.mode == "cubic" and rule.cubic != -0.75):
        return None
    for name in ("corners", "sizes", "scales"):
        if all(_same_places(rule, axis, name) for axis in axes):
            return name
    return None


def _same_nearest(rule: Rule, axis: Axis, shift: float) -> bool:
    """torch multiplies in float32; places that this could round the other way are not trusted to it."""
    theirs = (np.arange(axis.made) + shift) * (axis.size / axis.made if axis.made else 1.0)
    near = np.abs(theirs - np.round(theirs)) < 1e-4 * np.maximum(1, theirs)
    whole = near & (theirs != np.round(theirs))
    index = np.minimum(np.floor(theirs).astype(np.int64), axis.size - 1)
    return not whole.any() and bool((index[:, None] == axis_taps(rule, axis).index).all())


def _same_places(rule: Rule, axis: Axis, name: str) -> bool:
    y = np.arange(axis.made, dtype=np.float64)
    if name == "corners":
        theirs = y * (axis.size - 1) / (axis.made - 1) if axis.made > 1 else y * 0
    elif name == "scales" and math.floor(axis.size * axis.scale) != axis.made:
        return False
    else:
        ratio = axis.size / axis.made if name == "sizes" else 1 / axis.scale
        theirs = (y + 0.5) * ratio - 0.5
    ours = places(rule, axis)
    if rule.mode == "linear":  # at the left edge torch clamps the place, ONNX the index: the same
        theirs, ours = np.maximum(theirs, 0), np.maximum(ours, 0)
    return bool(np.allclose(theirs, ours, rtol=0, atol=1e-9))


def _rounded(x: Floats, how: str) -> npt.NDArray[np.int64]:
    if how == "floor":
        return np.floor(x).astype(np.int64)
    if how == "ceil":
        return np.ceil(x).astype(np.int64)
    if how == "round_prefer_floor":
        return np.ceil(x - 0.5).astype(np.int64)
    return np.floor(x + 0.5).astype(np.int64)


def _weighed(rule: Rule, axis: Axis, x: Floats) -> tuple[Any, Floats]:
    """Before anything is clamped: int64[made, taps], float64[made, taps] that sum to 1.

    Antialiasing stretches the kernel by the scale where the axis shrinks.
    """
    support = 1 if rule.mode == "linear" else 2
    shrink = min(axis.scale, 1.0) if rule.antialias else 1.0
    reach = math.ceil(support / shrink)
    offsets = np.arange(1 - reach, reach + 1)
    index = np.floor(x).astype(np.int64)[:, None] + offsets[None, :]
    distance = np.abs(index - x[:, None]) * shrink
    weights = np.maximum(0, 1 - distance) if support == 1 else _cubic(distance, rule.cubic)
    return index, weights / weights.sum(1, keepdims=True)


def _cubic(d: Floats, a: float) -> Floats:
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
