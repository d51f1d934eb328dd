"""Element-wise operators: functions, activations, arithmetic of two and more tensors."""

from __future__ import annotations

from collections.abc import Iterator

from torch_cases.table import (
    FLOATS,
    INTEGERS,
    WIDE,
    E,
    Entry,
    between,
    bools,
    exact,
    f,
    fixed,
    ints,
    values,
)

_UNARY = (
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Floor",
    "Identity",
    "Log",
    "Neg",
    "Reciprocal",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "Relu",
    "HardSwish",
    "Mish",
)


def _unary() -> Iterator[Entry]:
    ranges: dict[str, tuple[float, float]] = {
        "Acos": (-1, 1),
        "Acosh": (1, 9),
        "Asin": (-1, 1),
        "Atanh": (-0.9, 0.9),
        "Log": (0.1, 9),
        "Sqrt": (0, 9),
        "Tan": (-1, 1),
        "Reciprocal": (0.5, 3),
    }
    for op in _UNARY:
        yield E(op, between(*ranges.get(op, (-4, 4)), 3, 5), dtypes=FLOATS, opset=22)
    for op in ("Abs", "Neg", "Relu", "Sign"):
        yield exact(op, ints(-9, 9, 7, dtype="int32"))
    yield exact("Round", values([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], "float32"))
    yield exact("Not", bools(7))
    yield exact("BitwiseNot", ints(0, 200, 7, dtype="uint8"))
    special = ["nan", "inf", "-inf", 0.0, -0.0, 1.0]
    yield exact("IsNaN", values(special, "float32"))
    for low, high in ((1, 1), (0, 1), (1, 0), (0, 0)):
        yield exact("IsInf", values(special, "float32"), detect_negative=low, detect_positive=high)
    for op in ("Relu", "Sigmoid", "Tanh", "Abs", "Gelu", "Elu", "HardSwish"):
        yield E(op, values(special, None), opset=20)


def _activations() -> Iterator[Entry]:
    x = between(-4, 4, 3, 5)
    yield E("Gelu", x, dtypes=FLOATS)
    yield E("Gelu", x, dtypes=FLOATS, approximate="tanh")
    yield E("Celu", x, dtypes=("float32",))
    yield E("Celu", x, dtypes=("float32",), alpha=0.3)
    for op in ("Elu", "HardSigmoid", "LeakyRelu", "Selu", "ThresholdedRelu"):
        yield E(op, x, dtypes=FLOATS)
        yield E(op, x, alpha=0.3)
    yield E("Swish", x, opset=24, dtypes=FLOATS)
    yield E("Swish", x, opset=24, alpha=1.7)
    yield E("SwiGLU", x, x, opset=28, dtypes=FLOATS)
    yield E("SwiGLU", x, x, opset=28, alpha=1.7)
    yield E("HardSigmoid", x, alpha=0.1, beta=0.6)
    yield E("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    yield E("Selu", x, alpha=1.5, gamma=1.2)
    for bias, lambd in ((0.0, 0.5), (0.5, 0.5), (1.5, 1.0), (-0.5, 1.0)):
        yield E("Shrink", x, bias=bias, lambd=lambd)
    yield exact("Shrink", ints(-9, 9, 7, dtype="int32"), bias=1.0, lambd=2.0)
    for slope in ((), (1,), (5,), (4, 1), (3, 1, 1), (1, 3, 1, 1), (2, 3, 4, 5)):
        yield E("PRelu", f(2, 3, 4, 5), f(*slope), dtypes=FLOATS)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1, -1):
            yield E(op, f(2, 3, 4), axis=axis, dtypes=FLOATS if op != "Hardmax" else WIDE)
            yield E(op, f(2, 3, 4), axis=axis, opset=11)
        yield E(op, f(2, 3, 4))
        yield E(op, f(2, 3, 4), opset=11)
    yield E("Clip", x, fixed(-1.0, None), fixed(1.5, None), dtypes=FLOATS)
    yield E("Clip", x, values(-1.0, None), values(1.5, None))
    yield E("Clip", x, None, values(1.5, None))
    yield E("Clip", x, None, fixed(1.5, None))
    yield E("Clip", x, fixed(-1.0, None))
    yield E("Clip", x)
    yield E("Clip", x, values(2.0, None), values(-2.0, None))
    yield E("Clip", x, opset=10, min=-0.1)
    yield E("Clip", x, opset=10)
    yield exact("Clip", ints(-9, 9, 9, dtype="int32"), values(-3, "int32"), values(4, "int32"))
    yield E("Dropout", x, outputs=2)
    yield E("Dropout", x, values(0.3, "float32"))
    yield E("Dropout", x, values(0.0, "float32"), values(True, "bool"), outputs=2)
    yield E("Dropout", x, opset=10, ratio=0.3)


def _binary() -> Iterator[Entry]:
    pairs = (((3, 5), (3, 5)), ((3, 5), (5,)), ((2, 1, 5), (3, 1)), ((), (3,)), ((0, 3), (1,)))
    for op in ("Add", "Sub", "Mul", "Div"):
        for a, b in pairs:
            yield E(op, f(*a), between(0.5, 3, *b), dtypes=FLOATS if len(a) == 2 else WIDE)
        for dtype in INTEGERS:
            yield exact(
                op, ints(0 if dtype == "uint8" else -9, 9, 4, 3, dtype=dtype), ints(1, 5, 3, dtype=dtype)
            )
    yield exact("Div", values([-7, 7, -7, 7]), values([2, 2, -2, -2]))
    yield exact("Mod", values([-7, 7, -7, 7]), values([3, 3, -3, -3]))
    yield exact("Mod", values([-7, 7, -7, 7]), values([3, 3, -3, -3]), fmod=1)
    yield E("Mod", f(3, 5), between(0.5, 3, 5), fmod=1)
    yield E("Pow", between(0.1, 3, 3, 5), f(5), dtypes=FLOATS)
    yield E("Pow", f(3, 5), values(3, "int64"))
    yield E("Pow", f(3, 5), values([2.0], "float32"))
    yield exact("Pow", ints(-4, 4, 6, dtype="int32"), ints(0, 4, 6))
    yield exact("Pow", ints(1, 4, 6, dtype="int32"), values(2.0, "float32"))
    for op in ("And", "Or", "Xor"):
        yield exact(op, bools(3, 5), bools(5))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield exact(op, ints(-50, 50, 3, 5, dtype="int32"), ints(-50, 50, 5, dtype="int32"))
        yield exact(op, ints(0, 50, 3, 5, dtype="uint16"), ints(0, 50, 5, dtype="uint16"))
    for direction in ("LEFT", "RIGHT"):
        yield exact(
            "BitShift", ints(0, 255, 7, dtype="uint8"), ints(0, 7, 7, dtype="uint8"), direction=direction
        )
    for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        for dtype in ("int32", "uint8", "float32"):
            yield exact(op, ints(0, 4, 3, 5, dtype=dtype), ints(0, 4, 5, dtype=dtype))
        yield exact(op, values(["nan", 1.0, "inf"], "float32"), values(["nan", "nan", "inf"], "float32"))
    for op in ("Max", "Min", "Sum", "Mean"):
        yield E(op, f(3, 5), dtypes=WIDE)
        yield E(op, f(3, 5), f(5), dtypes=FLOATS)
        yield E(op, f(3, 5), f(1, 5), f(3, 1))
    for op in ("Max", "Min"):
        yield exact(op, ints(-9, 9, 3, 5, dtype="int32"), ints(-9, 9, 5, dtype="int32"))
        yield E(op, values([1.0, "nan", 3.0], None), values(["nan", 1.0, 2.0], None))
    yield E("Where", bools(3, 1), f(3, 5), f(5), dtypes=FLOATS)
    yield exact("Where", bools(5), ints(0, 9, 5, dtype="uint8"), ints(0, 9, 1, dtype="uint8"))


FAMILIES = (
    _unary,
    _activations,
    _binary,
)
