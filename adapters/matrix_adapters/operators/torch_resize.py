"""Resize in all its modes, and sampling at given places.

Where `interpolate` computes the same places and weights, it is called, as a user would.
Otherwise every axis is a gather with weights that were worked out before, by the formulas of
Resize-19: exact for every mode, and slower.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator
from matrix_adapters.operators.torch_resize_axis import Axis, Rule, axis_taps, native, plan_axes

_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}


def _resize(bound: Bound) -> Kernel:
    if bound.opset < 11:
        return _by_scales(bound, bound.value(1))
    rule = Rule(
        mode=bound.text("mode", "nearest", ("nearest", "linear", "cubic")),
        coordinates=bound.text("coordinate_transformation_mode", "half_pixel", _COORDINATES),
        nearest=bound.text("nearest_mode", "round_prefer_floor", _NEAREST),
        cubic=bound.real("cubic_coeff_a", -0.75),
        exclude_outside=bound.flag("exclude_outside"),
        antialias=bound.flag("antialias"),
        extrapolation=bound.real("extrapolation_value", 0.0),
    )
    policy = bound.text("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    axes = [bound.positive(axis) for axis in bound.integers("axes") or range(bound.rank())]
    roi, scales, sizes = bound.value(1), bound.value(2), bound.ints(3)
    if rule.coordinates == "tf_crop_and_resize" and not roi:
        bound.refuse("tf_crop_and_resize without roi")
    if not scales and not sizes:
        bound.refuse("neither scales nor sizes")
    plan = plan_axes(bound.shape(), axes, scales or None, sizes or None, policy)
    plan = [axis.cropped(roi, axes) for axis in plan] if rule.coordinates == "tf_crop_and_resize" else plan
    return _of_plan(bound, rule, plan)


def _by_scales(bound: Bound, scales: Any) -> Kernel:
    """Resize-10 and Upsample: places are divided by the scale, nearest is rounded down."""
    mode = bound.text("mode", "nearest", ("nearest", "linear", "bilinear"))
    rule = Rule(mode="nearest" if mode == "nearest" else "linear", coordinates="asymmetric", nearest="floor")
    if not scales:
        bound.refuse("no scales")
    return _of_plan(bound, rule, plan_axes(bound.shape(), list(range(bound.rank())), scales, None, "stretch"))


def _upsample(bound: Bound) -> Kernel:
    scales = bound.value(1) if bound.opset >= 9 else bound.reals("scales")
    return _by_scales(bound, scales)


def _of_plan(bound: Bound, rule: Rule, plan: list[Axis]) -> Kernel:
    work = [axis for axis in plan if axis.changes]
    size = [axis.made for axis in plan][2:]
    if not work:
        return lambda x: x
    if bound.is_float() and 3 <= bound.rank() <= 5 and not any(axis.changes for axis in plan[:2]):
        found = native(rule, plan[2:])
        if found is not None:
            return _interpolate(bound, rule, found, size, [axis.scale for axis in plan[2:]])
    return _gathered(bound, rule, work)


def _interpolate(bound: Bound, rule: Rule, how: str, size: list[int], scales: list[float]) -> Kernel:
    """`how`: a word of `native`."""
    if rule.mode == "nearest":
        return lambda x: F.interpolate(x, size, mode=how)
    rank = bound.rank()
    if rule.mode == "cubic" and rank != 4:
        return _gathered_all(bound, rule, size, scales)
    name = "bicubic" if rule.mode == "cubic" else _LINEAR[rank]
    if how == "corners":
        return lambda x: F.interpolate(x, size, mode=name, align_corners=True)
    if how == "sizes":
        return lambda x: F.interpolate(x, size, mode=name, align_corners=False)
    return lambda x: F.interpolate(
        x, scale_factor=scales, mode=name, align_corners=False, recompute_scale_factor=False
    )


def _gathered_all(bound: Bound, rule: Rule, size: list[int], scales: list[float]) -> Kernel:
    shape = bound.shape()
    axes = [Axis(place=2 + i, size=shape[2 + i], made=size[i], scale=scales[i]) for i in range(len(size))]
    return _gathered(bound, rule, [axis for axis in axes if axis.changes])


def _gathered(bound: Bound, rule: Rule, work: list[Axis]) -> Kernel:
    """Integers and narrow floats are weighed in a wider float, and rounded once."""
    kept, device = bound.dtype(), bound.device
    wide = (
        kept
        if kept in (torch.float32, torch.float64)
        else torch.float32
        if bound.is_float()
        else torch.float64
    )
    steps = []
    for axis in work:
        taps = axis_taps(rule, axis)
        index = torch.from_numpy(taps.index.reshape(-1)).to(device)
        after = [1] * (bound.rank() - 1 - axis.place)
        weights = None
        if taps.weights is not None:
            weights = torch.from_numpy(taps.weights).to(device, wide).reshape(*taps.weights.shape, *after)
        outside = None
        if taps.outside.any():
            outside = torch.from_numpy(taps.outside).to(device).reshape(-1, *after)
        steps.append((axis.place, tuple(taps.index.shape), index, weights, outside))
    moves_only = all(weights is None for *_, weights, _ in steps)
    value = rule.extrapolation

    def resize(x: Any) -> Any:
        if not moves_only:
            x = x.to(wide)
        for place, shape, index, weights, outside in steps:
            x = x.index_select(place, index)
            if weights is not None:
                x = (x.unflatten(place, shape) * weights).sum(place + 1)
            if outside is not None:
                x = torch.where(outside, value, x)
        return _narrowed(x, kept)

    return resize


def _narrowed(x: Any, kept: Any) -> Any:
    if kept.is_floating_point or x.dtype == kept:
        return x.to(kept)
    limits = torch.iinfo(kept)
    return x.round().clamp(limits.min, limits.max).to(kept)


def _grid_sample(bound: Bound) -> Kernel:
    """Opset 16 said bilinear and bicubic."""
    mode = bound.text("mode", "linear" if bound.opset >= 20 else "bilinear", _GRID_MODES)
    padding = bound.text("padding_mode", "zeros", ("zeros", "border", "reflection"))
    corners = bound.flag("align_corners")
    name = _GRID_MODES[mode]
    if bound.rank() == 5 and name == "bicubic":
        bound.refuse("cubic sampling of volumes")
    return lambda x, grid: F.grid_sample(x, grid, name, padding, corners)


def _affine_grid(bound: Bound) -> Kernel:
    size, corners = bound.ints(1) or [], bound.flag("align_corners")
    return lambda theta: F.affine_grid(theta, size, corners)


_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_GRID_MODES = {
    "linear": "bilinear",
    "bilinear": "bilinear",
    "nearest": "nearest",
    "cubic": "bicubic",
    "bicubic": "bicubic",
}

OPERATORS: dict[str, Operator] = {
    "AffineGrid": Operator(build=_affine_grid, static=(1,)),
    "GridSample": Operator(build=_grid_sample),
    "Resize": Operator(build=_resize, static=(1, 2, 3)),
    "Upsample": Operator(build=_upsample, static=(1,)),
}
