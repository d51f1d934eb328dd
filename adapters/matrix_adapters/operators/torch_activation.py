"""Activations, softmax and its relatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator
from matrix_adapters.operators.torch_elementwise import plain

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # of the specification


def _gelu(bound: Bound) -> Kernel:
    approximate = bound.text("approximate", "none", ("none", "tanh"))
    return lambda x: F.gelu(x, approximate=approximate)


def _elu(bound: Bound) -> Kernel:
    alpha = bound.real("alpha", 1.0)
    return lambda x: F.elu(x, alpha)


def _celu(bound: Bound) -> Kernel:
    alpha = bound.real("alpha", 1.0)
    return lambda x: F.celu(x, alpha)


def _selu(bound: Bound) -> Kernel:
    """F.selu has the same constants to float32, but not to float64."""
    alpha, gamma = bound.real("alpha", _SELU_ALPHA), bound.real("gamma", _SELU_GAMMA)
    usual = (alpha, gamma) == (_SELU_ALPHA, _SELU_GAMMA)
    if usual and bound.dtype() != torch.float64:
        return F.selu
    return lambda x: F.elu(x, alpha) * gamma


def _leaky_relu(bound: Bound) -> Kernel:
    alpha = bound.real("alpha", 0.01)
    return lambda x: F.leaky_relu(x, alpha)


def _prelu(bound: Bound) -> Kernel:
    """F.prelu takes one slope, or one per channel (axis 1); ONNX any that broadcasts."""
    shape, slope = bound.shape(), bound.shape(1)
    padded = (1,) * (len(shape) - len(slope)) + slope
    if bound.is_float() and math.prod(slope) == 1:
        return lambda x, s: F.prelu(x, s.reshape(1))
    if bound.is_float() and len(shape) > 1 and padded[1] == math.prod(slope) == shape[1]:
        return lambda x, s: F.prelu(x, s.reshape(-1))
    return lambda x, s: torch.where(x < 0, x * s, x)


def _hard_sigmoid(bound: Bound) -> Kernel:
    """F.hardsigmoid is alpha=1/6 and beta=1/2 only, which are not ONNX's defaults."""
    alpha, beta = bound.real("alpha", 0.2), bound.real("beta", 0.5)
    if beta == 0.5 and abs(alpha - 1 / 6) < 1e-8 and bound.dtype() != torch.float64:
        return F.hardsigmoid
    return lambda x: (x * alpha + beta).clamp(0, 1)


def _softplus(bound: Bound) -> Kernel:
    """Where torch goes over to x itself, exp(-x) is below the type's last place."""
    if bound.dtype() == torch.float64:
        return lambda x: F.softplus(x, threshold=40.0)
    return F.softplus


def _shrink(bound: Bound) -> Kernel:
    bias, limit = bound.real("bias", 0.0), bound.real("lambd", 0.5)
    if bound.is_float() and bias == 0 and limit >= 0:
        return lambda x: F.hardshrink(x, limit)
    if bound.is_float() and bias == limit >= 0:
        return lambda x: F.softshrink(x, limit)
    if not bound.is_float():
        if not bias.is_integer():
            bound.refuse(f"bias={bias} with integers")
        bias = int(bias)
    return lambda x: torch.where(x < -limit, x + bias, torch.where(x > limit, x - bias, 0))


def _thresholded_relu(bound: Bound) -> Kernel:
    alpha = bound.real("alpha", 1.0)
    return lambda x: F.threshold(x, alpha, 0.0)


def _swish(bound: Bound) -> Kernel:
    alpha = bound.real("alpha", 1.0)
    return F.silu if alpha == 1 else lambda x: x * torch.sigmoid(x * alpha)


def _swiglu(bound: Bound) -> Kernel:
    alpha = bound.real("alpha", 1.0)
    if bound.shape(0) != bound.shape(1):
        bound.refuse("inputs of different shapes")
    if alpha == 1:
        return lambda a, b: F.silu(a) * b
    return lambda a, b: a * torch.sigmoid(a * alpha) * b


def _along(function: Callable[[Any, int], Any]) -> Callable[[Bound], Kernel]:
    """Before opset 13 everything from `axis` on is one dimension; the default was 1."""

    def build(bound: Bound) -> Kernel:
        if bound.opset >= 13:
            axis = bound.axis(-1)
            return lambda x: function(x, axis)
        axis, shape = bound.axis(1), bound.shape()
        rows = math.prod(shape[:axis])
        columns = math.prod(shape[axis:])
        return lambda x: function(x.reshape(rows, columns), 1).reshape(shape)

    return build


def _hardmax(x: Any, axis: int) -> Any:
    return torch.zeros_like(x).scatter_(axis, x.argmax(axis, keepdim=True), 1)


def _softmax(x: Any, axis: int) -> Any:
    return F.softmax(x, dim=axis)


def _log_softmax(x: Any, axis: int) -> Any:
    return F.log_softmax(x, dim=axis)


def _dropout(bound: Bound) -> Kernel:
    """Inference; with training_mode only a ratio of 0 is the same for everybody."""
    bound.ignore("seed")
    ratio = bound.scalar(1) if bound.opset >= 12 else bound.real("ratio", 0.5)
    if bound.opset >= 12 and bound.scalar(2) and ratio != 0:
        bound.refuse("training_mode with a ratio above 0 is random")
    if not bound.wants(1):
        return lambda x: x
    return lambda x: (x, torch.ones_like(x, dtype=torch.bool))


OPERATORS: dict[str, Operator] = {
    "Celu": Operator(build=_celu),
    "Dropout": Operator(build=_dropout, static=(1, 2)),
    "Elu": Operator(build=_elu),
    "Gelu": Operator(build=_gelu),
    "HardSigmoid": Operator(build=_hard_sigmoid),
    "HardSwish": plain(F.hardswish),
    "Hardmax": Operator(build=_along(_hardmax)),
    "LeakyRelu": Operator(build=_leaky_relu),
    "LogSoftmax": Operator(build=_along(_log_softmax)),
    "Mish": plain(F.mish),
    "PRelu": Operator(build=_prelu),
    "Relu": plain(torch.relu),
    "Selu": Operator(build=_selu),
    "Shrink": Operator(build=_shrink),
    "Sigmoid": plain(torch.sigmoid),
    "Softmax": Operator(build=_along(_softmax)),
    "Softplus": Operator(build=_softplus),
    "Softsign": plain(F.softsign),
    "SwiGLU": Operator(build=_swiglu),
    "Swish": Operator(build=_swish),
    "ThresholdedRelu": Operator(build=_thresholded_relu),
}
