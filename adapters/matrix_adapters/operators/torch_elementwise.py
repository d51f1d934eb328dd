"""Element-wise arithmetic, comparison and logic, with NumPy's broadcasting, as torch has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator

_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def plain(function: Kernel) -> Operator:
    """An operator that is one torch function and nothing else: called without a wrapper."""
    return Operator(build=lambda bound: function)


def _identity(x: Any) -> Any:
    return x


def _variadic(function: Kernel) -> Callable[[Bound], Kernel]:
    def build(bound: Bound) -> Kernel:
        if len(bound.shapes) == 1:
            return _identity
        if len(bound.shapes) == 2:
            return function

        def fold(first: Any, *rest: Any) -> Any:
            for tensor in rest:
                first = function(first, tensor)
            return first

        return fold

    return build


def _mean(bound: Bound) -> Kernel:
    count, add = len(bound.shapes), _variadic(torch.add)(bound)
    return add if count == 1 else lambda *tensors: add(*tensors) / count


def _div(bound: Bound) -> Kernel:
    """Integers: towards zero, as the specification of Div-14 says."""
    if bound.is_float():
        return torch.div
    return lambda a, b: torch.div(a, b, rounding_mode="trunc")


def _mod(bound: Bound) -> Kernel:
    """fmod=0: the sign of the divisor (Python's); fmod=1: the sign of the dividend (C's)."""
    if bound.flag("fmod"):
        return torch.fmod
    if bound.is_float():
        bound.refuse("fmod=0 is defined for integers only")
    return torch.remainder


def _pow(bound: Bound) -> Kernel:
    """The result has the type of the base, whatever the exponent's."""
    kept = bound.dtype()
    if bound.has(1) and torch.promote_types(kept, bound.dtype(1)) == kept:
        return torch.pow
    return lambda x, y: torch.pow(x, y).to(kept)


def _bit_shift(bound: Bound) -> Kernel:
    left = bound.text("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    if bound.dtype() not in _UNSIGNED:
        bound.refuse("it is defined for unsigned integers only")
    return torch.bitwise_left_shift if left else torch.bitwise_right_shift


def _is_inf(bound: Bound) -> Kernel:
    negative, positive = bound.flag("detect_negative", 1), bound.flag("detect_positive", 1)
    if negative and positive:
        return torch.isinf
    if positive:
        return torch.isposinf
    if negative:
        return torch.isneginf
    return lambda x: torch.zeros_like(x, dtype=torch.bool)


def _clip(bound: Bound) -> Kernel:
    """Bounds are attributes before opset 11; a missing one does not bound."""
    if bound.opset < 11:
        low, high = (bound.real(n, d) if n in bound.node.attributes else None for n, d in _CLIP_6)
        return _identity if low is None and high is None else lambda x: torch.clamp(x, low, high)
    if not bound.has(1) and not bound.has(2):
        return lambda x, *_: x
    fixed = {i: bound.scalar(i) for i in (1, 2) if i in bound.known}
    if all(i in fixed or not bound.has(i) for i in (1, 2)):
        low, high = fixed.get(1), fixed.get(2)
        return lambda x, *_: torch.clamp(x, low, high)
    return lambda x, low=None, high=None: torch.clamp(x, low, high)


_CLIP_6 = (("min", 0.0), ("max", 0.0))

OPERATORS: dict[str, Operator] = {
    "Abs": plain(torch.abs),
    "Acos": plain(torch.acos),
    "Acosh": plain(torch.acosh),
    "Add": plain(torch.add),
    "And": plain(torch.logical_and),
    "Asin": plain(torch.asin),
    "Asinh": plain(torch.asinh),
    "Atan": plain(torch.atan),
    "Atanh": plain(torch.atanh),
    "BitShift": Operator(build=_bit_shift),
    "BitwiseAnd": plain(torch.bitwise_and),
    "BitwiseNot": plain(torch.bitwise_not),
    "BitwiseOr": plain(torch.bitwise_or),
    "BitwiseXor": plain(torch.bitwise_xor),
    "Ceil": plain(torch.ceil),
    "Clip": Operator(build=_clip),
    "Cos": plain(torch.cos),
    "Cosh": plain(torch.cosh),
    "Div": Operator(build=_div),
    "Equal": plain(torch.eq),
    "Erf": plain(torch.erf),
    "Exp": plain(torch.exp),
    "Floor": plain(torch.floor),
    "Greater": plain(torch.gt),
    "GreaterOrEqual": plain(torch.ge),
    "Identity": plain(_identity),
    "IsInf": Operator(build=_is_inf),
    "IsNaN": plain(torch.isnan),
    "Less": plain(torch.lt),
    "LessOrEqual": plain(torch.le),
    "Log": plain(torch.log),
    "Max": Operator(build=_variadic(torch.maximum)),
    "Mean": Operator(build=_mean),
    "Min": Operator(build=_variadic(torch.minimum)),
    "Mod": Operator(build=_mod),
    "Mul": plain(torch.mul),
    "Neg": plain(torch.neg),
    "Not": plain(torch.logical_not),
    "Or": plain(torch.logical_or),
    "Pow": Operator(build=_pow),
    "Reciprocal": plain(torch.reciprocal),
    "Round": plain(torch.round),
    "Sign": plain(torch.sign),
    "Sin": plain(torch.sin),
    "Sinh": plain(torch.sinh),
    "Sqrt": plain(torch.sqrt),
    "Sub": plain(torch.sub),
    "Sum": Operator(build=_variadic(torch.add)),
    "Tan": plain(torch.tan),
    "Tanh": plain(torch.tanh),
    "Where": plain(torch.where),
    "Xor": plain(torch.logical_xor),
}
