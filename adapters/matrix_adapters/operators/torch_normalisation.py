"""Normalisations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator


def _batch(bound: Bound) -> Kernel:
    """In training mode the running variance takes the population's, where torch takes the sample's."""
    epsilon, momentum = bound.real("epsilon", 1e-5), bound.real("momentum", 0.9)
    if bound.opset < 9 and not bound.flag("spatial", 1):
        bound.refuse("spatial=0")
    if bound.opset < 14 or not bound.flag("training_mode"):
        if bound.wants(1):
            bound.refuse("running statistics without training_mode")
        return lambda x, scale, b, mean, var: F.batch_norm(x, mean, var, scale, b, False, 0.0, epsilon)
    axes = [0, *range(2, bound.rank())]

    def train(x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
        seen_var, seen_mean = torch.var_mean(x, axes, correction=0)
        y = F.batch_norm(x, seen_mean, seen_var, scale, b, False, 0.0, epsilon)
        new_mean = mean * momentum + seen_mean * (1 - momentum)
        return y, new_mean, var * momentum + seen_var * (1 - momentum)

    count = bound.outputs
    return (lambda *tensors: train(*tensors)[0]) if count == 1 else lambda *t: train(*t)[:count]


def _layer(bound: Bound) -> Kernel:
    axis, epsilon = bound.axis(-1), bound.real("epsilon", 1e-5)
    stash = _stash(bound)
    shape, rank = bound.shape()[axis:], bound.rank()
    fits = bound.shape(1) == shape and (not bound.has(2) or bound.shape(2) == shape)
    if fits and not bound.wants(1) and not bound.wants(2):
        return lambda x, scale, b=None: F.layer_norm(x, shape, scale, b, epsilon)
    reduced = (*bound.shape()[:axis], *([1] * (rank - axis)))

    def layer(x: Any, scale: Any, b: Any = None) -> Any:
        given = (scale, b) if fits else (None, None)
        y, mean, inverse = torch.native_layer_norm(x, shape, *given, epsilon)
        if not fits:
            y = y * scale if b is None else y * scale + b
        return y, mean.reshape(reduced).to(stash), inverse.reshape(reduced).to(stash)

    count = bound.outputs
    return (lambda *tensors: layer(*tensors)[0]) if count == 1 else lambda *t: layer(*t)[:count]


def _stash(bound: Bound) -> Any:
    """The type of Mean and InvStdDev: float32 unless the case computes in float64 throughout."""
    stash = bound.element_type("stash_type", "float32")
    return torch.float64 if bound.dtype() == torch.float64 else stash


def _rms(bound: Bound) -> Kernel:
    axis, epsilon = bound.axis(-1), bound.real("epsilon", 1e-5)
    bound.element_type("stash_type", "float32")  # torch computes narrow floats in float32 too
    shape = bound.shape()[axis:]
    if bound.shape(1) == shape:
        return lambda x, scale: F.rms_norm(x, shape, scale, epsilon)
    return lambda x, scale: F.rms_norm(x, shape, None, epsilon) * scale


def _group(bound: Bound) -> Kernel:
    """Before opset 21 scale and bias are per group, from then on per channel."""
    groups, epsilon = bound.integer("num_groups"), bound.real("epsilon", 1e-5)
    bound.ignore("stash_type")
    channels = bound.shape()[1]
    if bound.opset >= 21 or bound.shape(1) == (channels,):
        return lambda x, scale, b: torch.group_norm(x, groups, scale, b, epsilon)
    each = channels // groups

    def grouped(x: Any, scale: Any, b: Any) -> Any:
        scale, b = scale.repeat_interleave(each), b.repeat_interleave(each)
        return torch.group_norm(x, groups, scale, b, epsilon)

    return grouped


def _instance(bound: Bound) -> Kernel:
    epsilon = bound.real("epsilon", 1e-5)
    return lambda x, scale, b: torch.instance_norm(x, scale, b, None, None, True, 0.0, epsilon, False)


def _lrn(bound: Bound) -> Kernel:
    """F.local_response_norm, whose window leans the other way where `size` is even."""
    size = bound.integer("size")
    alpha, beta, k = bound.real("alpha", 1e-4), bound.real("beta", 0.75), bound.real("bias", 1.0)
    if size % 2 and bound.rank() > 2:
        return lambda x: F.local_response_norm(x, size, alpha, beta, k)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    shape = bound.shape()

    def lrn(x: Any) -> Any:
        square = F.pad(x.square().reshape(shape[0], 1, shape[1], -1), (0, 0, before, after))
        total = F.avg_pool2d(square, (size, 1), 1).reshape(shape)
        return x / (total * alpha + k).pow(beta)

    return lrn


def _mean_variance(bound: Bound) -> Kernel:
    axes = bound.integers("axes", (0, 2, 3))

    def normalise(x: Any) -> Any:
        deviation, mean = torch.std_mean(x, axes, correction=0, keepdim=True)
        return (x - mean) / (deviation + 1e-9)

    return normalise


def _lp(bound: Bound) -> Kernel:
    """A vector of norm 0 stays 0 (LpNormalization-22)."""
    axis, p = bound.axis(-1), bound.integer("p", 2)
    least = torch.finfo(bound.dtype()).smallest_normal * torch.finfo(bound.dtype()).eps
    return lambda x: F.normalize(x, p, axis, least)


OPERATORS: dict[str, Operator] = {
    "BatchNormalization": Operator(build=_batch),
    "GroupNormalization": Operator(build=_group),
    "InstanceNormalization": Operator(build=_instance),
    "LRN": Operator(build=_lrn),
    "LayerNormalization": Operator(build=_layer),
    "LpNormalization": Operator(build=_lp),
    "MeanVarianceNormalization": Operator(build=_mean_variance),
    "RMSNormalization": Operator(build=_rms),
}
