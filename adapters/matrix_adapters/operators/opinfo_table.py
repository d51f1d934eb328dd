"""Which OpInfo of PyTorch's tests is one ONNX operator, and how a sample of it becomes a node.

A translation takes the sample's input, arguments and keywords, all bound by name, and gives the
node's inputs in order and its attributes; it raises `Untold` for a sample that the operator has no
words for (an `alpha` of add, a reduction in another type). Tables first, the exceptions below them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from matrix_adapters.operators import opinfo_layers
from matrix_adapters.operators.opinfo_told import Told, Translate, Untold, nothing

OPSET = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One OpInfo: `variant` is its `variant_test_name`."""

    operator: str
    translate: Translate
    variant: str = ""


def _plain(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    nothing(args, kwargs)
    return Told(inputs=[given])


def _pair(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    other, *more = args or (kwargs.get("other"),)
    nothing(more, {k: v for k, v in kwargs.items() if k != "other" and not (k == "alpha" and v == 1)})
    return Told(inputs=[given, _like(other, given)])


def _remainder(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    if given.is_floating_point():
        raise Untold("of floats it has the sign of the dividend, as C's fmod")
    return _pair(given, args, kwargs)


def _reduced(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    dim, keep = _dim_and_keep(args, kwargs)
    axes = list(range(given.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if not axes and given.dim():
        raise Untold("an empty list of axes means all of them in torch")
    if not given.dim():
        raise Untold("a tensor without axes has none to reduce")
    return Told(inputs=[given, axes], attributes={"keepdims": int(keep)})


def _arg_reduced(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    dim, keep = _dim_and_keep(args, kwargs)
    if dim is None or not given.dim():
        raise Untold("the index in the flattened tensor")
    return Told(inputs=[given], attributes={"axis": dim, "keepdims": int(keep)})


def _scan(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    dim = args[0] if args else kwargs["dim"]
    nothing(args[1:], {k: v for k, v in kwargs.items() if k != "dim"})
    if not given.dim():
        raise Untold("a tensor without axes has none to sum along")
    return Told(inputs=[given, _Scalar(dim)])


def _along(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    """Softmax and its kin."""
    dim = args[0] if args else kwargs.get("dim")
    rest = {k: v for k, v in kwargs.items() if k not in ("dim", "_stacklevel")}
    nothing(args[1:], rest)
    if dim is None or not given.dim():
        raise Untold("no axis")
    return Told(inputs=[given], attributes={"axis": dim})


def _product(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    nothing(args[1:], kwargs)
    if not given.dim() or not args[0].dim():
        raise Untold("a product with a scalar")
    return Told(inputs=[given, args[0]])


def _gemm(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    nothing(args[2:], {k: v for k, v in kwargs.items() if k not in ("alpha", "beta")})
    if isinstance(alpha, complex) or isinstance(beta, complex):
        raise Untold("complex factors")
    return Told(inputs=[args[0], args[1], given], attributes={"alpha": float(alpha), "beta": float(beta)})


def _factor(name: str, default: float) -> Translate:
    """An activation with one number, which torch may call otherwise."""

    def translate(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
        value = args[0] if args else kwargs.get(name, default)
        rest = {k: v for k, v in kwargs.items() if k not in (name, "inplace")}
        nothing(args[1:], rest)
        return Told(inputs=[given], attributes={"alpha": float(value)})

    return translate


def _gelu(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    return Told(inputs=[given], attributes={"approximate": kwargs.get("approximate", "none")})


def _softplus(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    if args or kwargs.get("beta", 1) != 1 or kwargs.get("threshold", 20) != 20:
        raise Untold("another beta or threshold")
    return Told(inputs=[given])


def _hard_sigmoid(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    return Told(inputs=[given], attributes={"alpha": 1 / 6, "beta": 0.5})


def _layer_norm(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    shape, *more = args
    weight = more[0] if more else kwargs.get("weight")
    bias = more[1] if len(more) > 1 else kwargs.get("bias")
    epsilon = more[2] if len(more) > 2 else kwargs.get("eps", 1e-5)
    if weight is None:
        raise Untold("no scale")
    inputs = [given, weight] if bias is None else [given, weight, bias]
    return Told(inputs=inputs, attributes={"axis": -len(shape), "epsilon": float(epsilon)})


def _clip(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    low = args[0] if args else kwargs.get("min")
    high = args[1] if len(args) > 1 else kwargs.get("max")
    for bound in (low, high):
        if bound is not None and getattr(bound, "ndim", None):
            raise Untold("bounds of their own for every element")
    return Told(inputs=[given, *(None if b is None else _like(b, given) for b in (low, high))])


def _where(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    condition, other = args
    return Told(inputs=[condition, given, _like(other, given)])


def _transposed(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    order = list(args[0] if args and not isinstance(args[0], int) else args)
    return Told(inputs=[given], attributes={"perm": [axis % len(order) for axis in order]})


def _gathered(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    """`gather` and `index_select`: an axis, and indices."""
    dim, index = args[0], args[1]
    if not given.dim():
        raise Untold("a tensor without axes has none to gather along")
    return Told(inputs=[given, index], attributes={"axis": dim})


def _triangle(upper: int) -> Translate:
    def translate(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
        k = args[0] if args else kwargs.get("diagonal", 0)
        return Told(inputs=[given, _Scalar(int(k))], attributes={"upper": upper})

    return translate


def _tiled(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    """Torch takes fewer repeats than axes: they are of the last ones."""
    nothing(args[1:], kwargs)
    repeats = list(args[0])
    if len(repeats) > given.dim() or not given.dim():
        raise Untold("more repeats than axes, which adds some")
    return Told(inputs=[given, [1] * (given.dim() - len(repeats)) + repeats])


@dataclasses.dataclass(frozen=True)
class _Scalar:
    """A whole number that is a tensor without axes."""

    value: int


def scalar_of(value: Any) -> int | None:
    """The number of an input that is a tensor without axes; None for any other input."""
    return value.value if isinstance(value, _Scalar) else None


def _entries(translate: Translate, names: Mapping[str, str]) -> dict[str, Entry]:
    return {torch: Entry(operator=onnx, translate=translate) for torch, onnx in names.items()}


_SAME_NAME = (
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "floor",
    "log",
    "neg",
    "reciprocal",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
)
_UNARY = {
    **{name: name.capitalize() for name in _SAME_NAME},
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "bitwise_not": "BitwiseNot",
    "nn.functional.relu": "Relu",
    "nn.functional.softsign": "Softsign",
    "nn.functional.mish": "Mish",
    "nn.functional.hardswish": "HardSwish",
    "nn.functional.selu": "Selu",
    "nn.functional.silu": "Swish",
}
_BINARY = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "pow": "Pow",
    "eq": "Equal",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "lt": "Less",
    "le": "LessOrEqual",
    "maximum": "Max",
    "minimum": "Min",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
}
_REDUCTIONS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "logsumexp": "ReduceLogSumExp",
}

#: OpInfo's name -> the operator; what is not here has no one ONNX operator, or is not told yet
ENTRIES: Mapping[str, Entry] = {
    **_entries(_plain, _UNARY),
    **_entries(_pair, _BINARY),
    "remainder": Entry(operator="Mod", translate=_remainder),
    "div": Entry(operator="Div", translate=_pair, variant="no_rounding_mode"),
    **_entries(_reduced, _REDUCTIONS),
    **_entries(_arg_reduced, {"argmax": "ArgMax", "argmin": "ArgMin"}),
    **_entries(_scan, {"cumsum": "CumSum", "cumprod": "CumProd"}),
    **_entries(_along, {"softmax": "Softmax", "log_softmax": "LogSoftmax"}),
    **_entries(_product, {"matmul": "MatMul", "mm": "MatMul", "bmm": "MatMul"}),
    "addmm": Entry(operator="Gemm", translate=_gemm),
    "nn.functional.leaky_relu": Entry(operator="LeakyRelu", translate=_factor("negative_slope", 0.01)),
    "nn.functional.elu": Entry(operator="Elu", translate=_factor("alpha", 1.0)),
    "nn.functional.celu": Entry(operator="Celu", translate=_factor("alpha", 1.0)),
    "nn.functional.gelu": Entry(operator="Gelu", translate=_gelu),
    "nn.functional.softplus": Entry(operator="Softplus", translate=_softplus),
    "nn.functional.hardsigmoid": Entry(operator="HardSigmoid", translate=_hard_sigmoid),
    "nn.functional.layer_norm": Entry(operator="LayerNormalization", translate=_layer_norm),
    "clamp": Entry(operator="Clip", translate=_clip),
    "where": Entry(operator="Where", translate=_where),
    "permute": Entry(operator="Transpose", translate=_transposed),
    "gather": Entry(operator="GatherElements", translate=_gathered),
    "index_select": Entry(operator="Gather", translate=_gathered),
    "tril": Entry(operator="Trilu", translate=_triangle(0)),
    "triu": Entry(operator="Trilu", translate=_triangle(1)),
    "tile": Entry(operator="Tile", translate=_tiled),
    **{
        torch: Entry(operator=onnx, translate=translate)
        for torch, (onnx, translate) in opinfo_layers.TRANSLATIONS.items()
    },
}


def _dim_and_keep(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, bool]:
    given = dict(zip(("dim", "keepdim"), args, strict=False)) | dict(kwargs)
    dim, keep = given.pop("dim", None), bool(given.pop("keepdim", False))
    nothing(args[2:], given)
    return dim, keep


def _like(other: Any, given: Any) -> Any:
    """A second operand: a number counts as a tensor of the first one's type."""
    if isinstance(other, (bool, int, float)):
        made = given.new_tensor(other)
        if made.item() != other:
            raise Untold("a number that the tensor's type cannot hold")
        return made
    return other
