"""Products, convolutions, pools and normalisations."""

from __future__ import annotations

from collections.abc import Iterator

from torch_cases.table import (
    FLOATS,
    WIDE,
    E,
    Entry,
    between,
    exact,
    f,
    ints,
    values,
)


def _linear() -> Iterator[Entry]:
    for a, b in (
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 1, 3, 4), (5, 4, 6)),
        ((4,), (4,)),
        ((3, 0), (0, 2)),
    ):
        yield E("MatMul", f(*a), f(*b), dtypes=FLOATS if len(b) == 2 else WIDE)
    yield exact("MatMul", ints(-9, 9, 3, 4, dtype="int32"), ints(-9, 9, 4, 5, dtype="int32"))
    for c in ((), (1,), (5,), (3, 1), (3, 5), (1, 5)):
        yield E("Gemm", f(3, 4), f(4, 5), f(*c), dtypes=FLOATS)
        yield E("Gemm", f(3, 4), f(5, 4), f(*c), transB=1)
        yield E("Gemm", f(4, 3), f(5, 4), f(*c), transA=1, transB=1, alpha=0.3, beta=1.7)
    yield E("Gemm", f(4, 3), f(4, 5), transA=1, alpha=0.5)
    yield exact(
        "Gemm",
        ints(-9, 9, 3, 4, dtype="int32"),
        ints(-9, 9, 4, 5, dtype="int32"),
        ints(-9, 9, 5, dtype="int32"),
        alpha=2.0,
    )
    for equation, shapes in {
        "ij,jk->ik": ((3, 4), (4, 5)),
        "bij,bjk": ((2, 3, 4), (2, 4, 5)),
        "ii->i": ((4, 4),),
        "ij->": ((3, 4),),
        "...ii->...i": ((2, 4, 4),),
        "bhqd,bhkd->bhqk": ((1, 2, 3, 4), (1, 2, 5, 4)),
        "i, i": ((4,), (4,)),
        "...ij,...jk->...ik": ((2, 3, 4), (4, 5)),
    }.items():
        yield E("Einsum", *(f(*shape) for shape in shapes), equation=equation)
    yield E("Det", f(3, 3))
    yield E("Det", f(2, 3, 4, 4))


def _convolutions() -> Iterator[Entry]:
    for spatial, kernel in (((9,), (3,)), ((8, 7), (3, 2)), ((5, 6, 5), (2, 3, 2))):
        n = len(spatial)
        x, w = f(2, 4, *spatial), f(6, 4, *kernel)
        yield E("Conv", x, w, dtypes=FLOATS if n == 2 else WIDE)
        yield E("Conv", x, w, f(6), strides=[2] * n, pads=[1] * 2 * n)
        yield E("Conv", x, w, f(6), pads=[0] * n + [1] * n)
        yield E("Conv", x, w, dilations=[2] * n, kernel_shape=list(kernel))
        yield E("Conv", x, f(6, 2, *kernel), f(6), group=2)
        yield E("Conv", x, f(8, 1, *kernel), group=4)
        for auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            yield E("Conv", x, w, auto_pad=auto, strides=[2] * n)
            yield E("Conv", x, w, auto_pad=auto)
        t = f(4, 3, *kernel)
        yield E("ConvTranspose", x, t, dtypes=FLOATS if n == 2 else WIDE)
        yield E("ConvTranspose", x, t, f(3), strides=[2] * n, pads=[1] * 2 * n, output_padding=[1] * n)
        yield E("ConvTranspose", x, t, f(3), strides=[3] * n, pads=[0] * n + [1] * n)
        yield E("ConvTranspose", x, t, dilations=[2] * n)
        yield E("ConvTranspose", x, f(4, 3, *kernel), f(6), group=2)
        for auto in ("SAME_UPPER", "SAME_LOWER"):
            yield E("ConvTranspose", x, t, strides=[2] * n, auto_pad=auto)
        yield E("ConvTranspose", x, t, strides=[2] * n, output_shape=[2 * s for s in spatial])
    yield E("Col2Im", f(1, 12, 9), values([4, 4]), values([2, 2]))
    yield E("Col2Im", f(2, 12, 16), values([5, 4]), values([2, 2]), pads=[0, 0, 0, 1], opset=18)
    yield E("Col2Im", f(1, 8, 4), values([5, 5]), values([2, 2]), strides=[2, 2], dilations=[2, 2])


def _pools() -> Iterator[Entry]:
    for spatial, kernel in (((9,), (3,)), ((8, 7), (3, 2)), ((5, 6, 5), (2, 3, 2))):
        n = len(spatial)
        x, k = f(2, 3, *spatial), list(kernel)
        for op in ("AveragePool", "MaxPool", "LpPool"):
            dtypes = FLOATS if n == 2 else WIDE
            yield E(op, x, kernel_shape=k, dtypes=dtypes, opset=22)
            yield E(op, x, kernel_shape=k, strides=[2] * n, pads=[1] * 2 * n, opset=22)
            yield E(op, x, kernel_shape=k, strides=[2] * n, pads=[0] * n + [1] * n, opset=22)
            yield E(op, x, kernel_shape=k, strides=[2] * n, ceil_mode=1, opset=22)
            yield E(op, x, kernel_shape=k, strides=[2] * n, ceil_mode=1, pads=[1] * 2 * n, opset=22)
            yield E(op, x, kernel_shape=k, strides=[3] * n, ceil_mode=1, pads=[1] * 2 * n, opset=22)
            yield E(op, x, kernel_shape=k, dilations=[2] * n, opset=22)
            yield E(op, x, kernel_shape=k, dilations=[2] * n, pads=[1] * 2 * n, strides=[2] * n, opset=22)
            for auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
                yield E(op, x, kernel_shape=k, strides=[2] * n, auto_pad=auto, opset=22)
        for ceil in (0, 1):
            for pads in ([1] * 2 * n, [0] * n + [1] * n):
                yield E(
                    "AveragePool",
                    x,
                    kernel_shape=k,
                    strides=[2] * n,
                    pads=pads,
                    ceil_mode=ceil,
                    count_include_pad=1,
                    opset=22,
                )
        yield E(
            "AveragePool",
            x,
            kernel_shape=k,
            count_include_pad=1,
            dilations=[2] * n,
            pads=[1] * 2 * n,
            opset=22,
        )
        for order in (0, 1) if n == 2 else (0,):
            yield E("MaxPool", x, kernel_shape=k, outputs=2, storage_order=order)
            yield E(
                "MaxPool",
                x,
                kernel_shape=k,
                outputs=2,
                pads=[1] * 2 * n,
                strides=[2] * n,
                storage_order=order,
            )
            yield E(
                "MaxPool",
                x,
                kernel_shape=k,
                outputs=2,
                pads=[0] * n + [1] * n,
                strides=[2] * n,
                storage_order=order,
            )
        yield E("LpPool", x, kernel_shape=k, p=1)
        yield E("LpPool", x, kernel_shape=k, p=3)
        for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            yield E(op, x, dtypes=FLOATS)
        yield E("GlobalLpPool", x, p=3)
    yield exact("MaxPool", ints(-50, 50, 1, 2, 6, 6, dtype="int8"), kernel_shape=[2, 2])
    yield exact("MaxPool", ints(0, 50, 1, 2, 6, 6, dtype="uint8"), kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    yield E("MaxUnpool", f(1, 1, 2, 2), values([[[[5, 7], [13, 15]]]]), kernel_shape=[2, 2], strides=[2, 2])
    yield E(
        "MaxUnpool",
        f(1, 1, 2, 2),
        values([[[[5, 7], [13, 15]]]]),
        values([1, 1, 5, 5]),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )


def _normalisations() -> Iterator[Entry]:
    for shape in ((2, 4, 5), (2, 4, 3, 5), (3, 4)):
        x, c = f(*shape), between(0.5, 2, 4)
        yield E("BatchNormalization", x, c, f(4), f(4), between(0.5, 2, 4), dtypes=FLOATS)
        yield E("BatchNormalization", x, c, f(4), f(4), between(0.5, 2, 4), epsilon=0.01, opset=9)
        yield E(
            "BatchNormalization",
            x,
            c,
            f(4),
            f(4),
            between(0.5, 2, 4),
            training_mode=1,
            momentum=0.8,
            outputs=3,
        )
    yield E("BatchNormalization", f(2, 3, 4), f(3), f(3), f(3), between(0.5, 2, 3), training_mode=1)
    for axis in (-1, 1, -2):
        shape = (2, 3, 4, 5)[axis:]
        yield E("LayerNormalization", f(2, 3, 4, 5), f(*shape), f(*shape), axis=axis, dtypes=FLOATS)
        yield E("LayerNormalization", f(2, 3, 4, 5), f(*shape), axis=axis, epsilon=0.1)
        yield E(
            "LayerNormalization",
            f(2, 3, 4, 5),
            f(*shape),
            f(*shape),
            axis=axis,
            outputs=3,
            dtypes=("float32", "float16", "bfloat16"),
        )
        yield E("RMSNormalization", f(2, 3, 4, 5), f(*shape), axis=axis, opset=23, dtypes=FLOATS)
    yield E("LayerNormalization", f(2, 3, 8), f(1), f(1))
    yield E("LayerNormalization", f(2, 3, 8), f(8), f(8), outputs=(True, False, True), dtypes=("float32",))
    yield E("RMSNormalization", f(2, 8), f(1), epsilon=0.1, opset=23)
    yield E("GroupNormalization", f(2, 6, 4, 3), f(6), f(6), num_groups=3, dtypes=FLOATS)
    yield E("GroupNormalization", f(2, 6, 4), f(6), f(6), num_groups=2, epsilon=0.1)
    for shape in ((2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 2, 3)):
        yield E("InstanceNormalization", f(*shape), f(3), f(3), dtypes=FLOATS)
    for size in (1, 2, 3, 4, 5):
        yield E(
            "LRN",
            f(2, 6, 3, 4),
            size=size,
            alpha=0.5,
            beta=0.6,
            bias=1.5,
            dtypes=FLOATS if size == 3 else WIDE,
        )
    yield E("LRN", f(2, 6, 3), size=3)
    yield E("MeanVarianceNormalization", f(2, 3, 4, 5))
    yield E("MeanVarianceNormalization", f(2, 3, 4), axes=[1, 2])
    for p in (1, 2):
        yield E("LpNormalization", f(3, 4, 5), p=p, opset=22)
        yield E("LpNormalization", f(3, 4, 5), p=p, axis=1)
    yield E("LpNormalization", values([[0.0, 0.0], [3.0, 4.0]], None), opset=22)


FAMILIES = (
    _linear,
    _convolutions,
    _pools,
    _normalisations,
)
