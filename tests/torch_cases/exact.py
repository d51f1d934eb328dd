"""Quantisation, losses, casts, Fourier transforms, and tensors with other strides."""

from __future__ import annotations

from collections.abc import Iterator

from torch_cases.table import (
    FLOATS,
    WIDE,
    E,
    Entry,
    Given,
    between,
    bools,
    exact,
    f,
    ints,
    values,
)


def _quantised() -> Iterator[Entry]:
    x = Given((3, 4, 5), "float32", "uniform", (("low", -30), ("high", 30)))
    for dtype in ("uint8", "int8", "uint16", "int16"):
        yield exact("QuantizeLinear", x, values(0.17, "float32"), values(100, dtype))
        yield exact(
            "DequantizeLinear", ints(0, 100, 3, 4, dtype=dtype), values(0.17, "float32"), values(60, dtype)
        )
    yield exact("QuantizeLinear", x, values(0.17, "float32"))
    yield exact("QuantizeLinear", x, values(0.17, "float32"), output_dtype="int8")
    yield exact(
        "QuantizeLinear", x, values([0.1, 0.2, 0.3, 0.4], "float32"), values([1, 2, 3, 4], "uint8"), axis=1
    )
    yield exact("QuantizeLinear", x, values([0.1, 0.2, 0.3], "float32"), axis=-3)
    yield exact(
        "QuantizeLinear",
        values([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, "inf"], "float32"),
        values(1.0, "float32"),
        values(3, "int8"),
    )
    yield exact(
        "QuantizeLinear",
        Given((4, 6), "float32"),
        Given((4, 2), "float32", "uniform", (("low", 0.1), ("high", 1))),
        axis=1,
        block_size=3,
    )
    yield exact("QuantizeLinear", Given((3, 4), "float16"), values(0.25, "float16"), values(1, "int8"))
    yield exact("QuantizeLinear", Given((3, 4), "bfloat16"), values(0.25, "bfloat16"), values(1, "uint16"))
    yield exact("DequantizeLinear", ints(-9, 9, 3, 4, dtype="int8"), values([0.1, 0.2, 0.3, 0.4], "float32"))
    yield exact("DequantizeLinear", ints(-900, 900, 3, 4, dtype="int32"), values(0.3, "float32"))
    yield exact(
        "DequantizeLinear",
        ints(-9, 9, 4, 6, dtype="int8"),
        Given((2, 6), "float32"),
        ints(-3, 3, 2, 6, dtype="int8"),
        axis=0,
        block_size=2,
    )
    yield exact("DequantizeLinear", ints(-9, 9, 3, 4, dtype="int8"), values(0.25, "float16"))
    yield exact("DynamicQuantizeLinear", x, outputs=3)
    yield exact("DynamicQuantizeLinear", Given((5,), "float32", "zeros"), outputs=3)
    yield exact(
        "DynamicQuantizeLinear", Given((5,), "float32", "uniform", (("low", 1), ("high", 3))), outputs=3
    )
    for a in ("uint8", "int8"):
        for b in ("uint8", "int8"):
            left, right = ints(0, 127, 3, 4, dtype=a), ints(0, 127, 4, 5, dtype=b)
            yield exact("MatMulInteger", left, right, values(3, a), values(7, b))
            yield exact("MatMulInteger", left, right)
            yield exact(
                "QLinearMatMul",
                left,
                values(0.1, "float32"),
                values(3, a),
                right,
                values(0.2, "float32"),
                values(7, b),
                values(0.9, "float32"),
                values(11, a),
            )
    yield exact(
        "MatMulInteger",
        ints(0, 255, 3, 4, dtype="uint8"),
        ints(0, 255, 4, 5, dtype="uint8"),
        values([1, 2, 3], "uint8"),
        values([1, 2, 3, 4, 5], "uint8"),
    )
    image, weight = ints(0, 255, 1, 2, 6, 5, dtype="uint8"), ints(0, 255, 4, 2, 3, 2, dtype="uint8")
    yield exact("ConvInteger", image, weight)
    yield exact(
        "ConvInteger",
        image,
        weight,
        values(5, "uint8"),
        values(7, "uint8"),
        pads=[1, 1, 0, 1],
        strides=[2, 1],
    )
    yield exact("ConvInteger", image, weight, values(5, "uint8"), values([1, 2, 3, 4], "uint8"))
    scale = values([0.01, 0.02, 0.03, 0.04], "float32")
    yield exact(
        "QLinearConv",
        image,
        values(0.1, "float32"),
        values(5, "uint8"),
        weight,
        scale,
        values([1, 2, 3, 4], "uint8"),
        values(1.3, "float32"),
        values(9, "uint8"),
        ints(-99, 99, 4, dtype="int32"),
        pads=[1, 1, 1, 1],
    )
    yield exact(
        "QLinearConv",
        image,
        values(0.1, "float32"),
        values(5, "uint8"),
        weight,
        values(0.02, "float32"),
        values(3, "uint8"),
        values(1.3, "float32"),
        values(9, "uint8"),
    )


def _losses() -> Iterator[Entry]:
    for reduction in ("none", "sum", "mean"):
        for shape in ((3, 5), (2, 5, 4), (2, 5, 3, 4)):
            labels = ints(0, 4, shape[0], *shape[2:])
            yield E("SoftmaxCrossEntropyLoss", f(*shape), labels, reduction=reduction, outputs=2)
            yield E(
                "SoftmaxCrossEntropyLoss",
                f(*shape),
                labels,
                between(0.5, 2, 5),
                reduction=reduction,
                ignore_index=2,
            )
            yield E("NegativeLogLikelihoodLoss", f(*shape), labels, reduction=reduction, dtypes=WIDE)
            yield E(
                "NegativeLogLikelihoodLoss",
                f(*shape),
                labels,
                between(0.5, 2, 5),
                reduction=reduction,
                ignore_index=1,
            )
    yield E("SoftmaxCrossEntropyLoss", f(3, 5), ints(0, 4, 3, dtype="int32"))


def _casts() -> Iterator[Entry]:
    numbers = values([-1.5, 0.0, 1.5, 2.5, 100.7, -0.0], "float32")
    for to in ("float16", "float64", "bfloat16", "int32", "int8", "uint8", "int64", "bool"):
        source = numbers if not to.startswith("u") else values([0.0, 1.5, 100.7], "float32")
        yield exact("Cast", source, to=to)
        yield exact("CastLike", source, Given((1,), to, "zeros"))
        yield exact(
            "Cast",
            ints(-100, 100, 5, dtype="int32") if to[0] != "u" else ints(0, 100, 5, dtype="int32"),
            to=to,
        )
    yield exact("Cast", values([1.0, "nan", "inf", "-inf", 1e9], "float32"), to="float16")
    yield exact("Cast", Given((7,), "bfloat16"), to=1)
    yield exact("Cast", bools(5), to="float32")
    yield exact("BitCast", Given((7,), "float32"), to="int32", opset=26)


def _spectral() -> Iterator[Entry]:
    for shape in ((2, 8, 1), (2, 8, 2)):
        for inverse in (0, 1):
            yield E("DFT", f(*shape), inverse=inverse)
            yield E("DFT", f(*shape), inverse=inverse, opset=17, axis=1)
            yield E("DFT", f(*shape), values(6), inverse=inverse)
            yield E("DFT", f(*shape), values(11), values(1), inverse=inverse)
    yield E("DFT", f(2, 8, 1), onesided=1)
    yield E("DFT", f(2, 5, 7, 1), None, values(1), onesided=1)
    yield E("DFT", f(2, 5, 2), onesided=1, inverse=1)
    for onesided in (0, 1):
        yield E("STFT", f(2, 24, 1), values(4), between(0.1, 1, 8), onesided=onesided)
        yield E("STFT", f(2, 24, 1), values(5), None, values(8), onesided=onesided)
        yield E("STFT", f(2, 24, 1), values(5), between(0.1, 1, 8), values(8), onesided=onesided)


def _layouts() -> Iterator[Entry]:
    for layout in ("transposed", "strided", "broadcast"):
        x = f(4, 6, layout=layout)
        yield E("Relu", x, dtypes=FLOATS)
        yield E("Softmax", x, dtypes=FLOATS)
        yield E("MatMul", x, f(6, 3, layout=layout), dtypes=FLOATS)
        yield E("ReduceSum", x, values([0]))
        yield E("Reshape", x, values([3, 8]))


FAMILIES = (
    _quantised,
    _losses,
    _casts,
    _spectral,
    _layouts,
)
