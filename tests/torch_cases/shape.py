"""What moves elements, picks them, or makes them from sizes."""

from __future__ import annotations

from collections.abc import Iterator

from torch_cases.table import (
    FLOATS,
    E,
    Entry,
    Given,
    bools,
    exact,
    f,
    fixed,
    ints,
    values,
)


def _shapes() -> Iterator[Entry]:
    x = f(3, 4, 5)
    yield E("Concat", f(3, 4), f(3, 2), axis=-1, dtypes=FLOATS)
    yield exact("Concat", bools(2, 4), bools(1, 4), axis=0)
    yield E("Split", f(3, 6), values([1, 2, 3]), axis=1, outputs=3)
    yield E("Split", f(3, 7), axis=-1, outputs=3, num_outputs=3)
    yield E("Split", f(3, 6), axis=1, outputs=2, opset=13)
    yield E("Split", f(6, 2), outputs=2, opset=11, split=[2, 4])
    yield E("Split", f(6, 2), outputs=1, num_outputs=1)
    for starts, ends, axes, steps in (
        ([1], [3], [0], None),
        ([0, 1], [2, -1], [1, 2], [1, 2]),
        ([-1], [-100], [1], [-1]),
        ([3, 4], [0, -6], [1, 2], [-2, -2]),
        ([5], [9], [0], [1]),
        ([-2], [9223372036854775807], [-1], None),
        ([2], [2], [0], [-1]),
    ):
        yield E("Slice", x, values(starts), values(ends), values(axes), values(steps) if steps else None)
        yield E(
            "Slice",
            x,
            fixed(starts),
            fixed(ends),
            fixed(axes),
            fixed(steps) if steps else None,
            dtypes=("float32",),
        )
    yield E("Slice", x, values([1, 0, 2]), values([2, 3, 5]))
    yield E("Slice", x, opset=9, starts=[1], ends=[3], axes=[1])
    for mode in ("constant", "reflect", "edge", "wrap"):
        for pads in ([0, 0, 1, 2, 0, 0, 2, 1], [1, 1, 0, 2, 0, 2, 1, 0]):
            yield E("Pad", f(2, 3, 4, 5), values(pads), mode=mode)
        yield E(
            "Pad",
            f(2, 3, 4),
            values([1, 2]),
            None,
            values([-1]),
            mode=mode,
            opset=18 if mode != "wrap" else 21,
        )
        yield exact("Pad", ints(0, 9, 3, 4, dtype="int32"), values([1, 2, 0, 1]), mode=mode)
        yield (
            E("Pad", f(3, 4), values([0, -1, 1, -2]), mode=mode)
            if mode in ("constant", "edge")
            else E("Pad", f(5), values([2, 3]), mode=mode)
        )
    yield E("Pad", f(3, 4), values([0, 1, 1, 2]), values(2.5, None))
    yield E("Pad", f(3, 4), opset=10, pads=[0, 1, 1, 2], value=1.5)
    yield exact("Pad", bools(3, 4), values([0, 1, 1, 2]), values(True, "bool"))
    yield exact("Pad", ints(0, 9, 3, dtype="uint8"), values([0, 1]), values(7, "uint8"))
    for shape in ([5, 12], [-1, 2], [0, -1], [0, 0, 5, 1], [60], [3, 2, 2, 5]):
        yield E("Reshape", x, values(shape))
        yield E("Reshape", x, fixed(shape), dtypes=("float32",))
    yield E("Reshape", f(0, 4), values([4, 0]), allowzero=1)
    yield E("Reshape", f(1), values([]))
    for axis in (0, 1, 2, 3, -1):
        yield E("Flatten", x, axis=axis)
    yield E("Squeeze", f(1, 3, 1, 4), values([0, -2]))
    yield E("Squeeze", f(1, 3, 1, 4))
    yield E("Squeeze", f(1, 3, 1, 4), opset=11, axes=[0])
    yield E("Unsqueeze", f(3, 4), values([0, -1]))
    yield E("Unsqueeze", f(3, 4), values([1, 2]))
    yield E("Unsqueeze", f(3, 4), opset=11, axes=[0, 3])
    for shape in ([3, 4], [2, 3, 4], [3, 1], [1]):
        yield E("Expand", f(3, 1), values(shape))
    yield E("Tile", f(2, 3), values([2, 1]))
    yield E("Tile", f(2, 3), values([0, 2]))
    yield E("Transpose", x)
    yield E("Transpose", x, perm=[1, 0, 2])
    yield exact("Shape", Given(x.shape, "float32"))
    yield exact("Shape", Given(x.shape, "float32"), start=-2)
    yield exact("Shape", Given(x.shape, "float32"), start=0, end=-1)
    yield exact("Size", Given(x.shape, "float32"))
    for upper in (0, 1):
        for k in (None, values(1), values(-2), values(9)):
            yield E("Trilu", f(2, 4, 5), *([] if k is None else [k]), upper=upper)
    yield exact("Trilu", bools(3, 3))
    for mode in ("DCR", "CRD"):
        yield E("DepthToSpace", f(2, 8, 3, 2), blocksize=2, mode=mode)
    yield E("SpaceToDepth", f(2, 2, 6, 4), blocksize=2)
    yield E("CenterCropPad", f(5, 8, 3), values([8, 5, 3]))
    yield E("CenterCropPad", f(6, 8), values([3]), axes=[-1])
    yield E("CenterCropPad", f(6, 7), values([9, 4]))


def _indices() -> Iterator[Entry]:
    for axis in (0, 1, -1):
        yield E("Gather", f(4, 5, 6), ints(-4, 3, 2, 3), axis=axis, dtypes=FLOATS)
        yield E("Gather", f(4, 5, 6), values([[0, -1], [2, 1]], constant=True), axis=axis)
        yield E("Gather", f(4, 5, 6), values(-2), axis=axis)
        yield E("Gather", f(4, 5, 6), fixed(1), axis=axis)
        yield E("GatherElements", f(4, 5), ints(-4, 3, 4, 5, dtype="int32"), axis=axis if axis < 2 else 0)
        yield E("GatherElements", f(4, 5), ints(0, 3, 2, 5), axis=0)
    yield E("GatherND", f(3, 4, 5), values([[0, 1], [-1, 2]]))
    yield E("GatherND", f(3, 4, 5), values([[[0, 1, 2]], [[-1, -2, 2]]]))
    yield E("GatherND", f(2, 3, 4), values([[1], [-1]]), batch_dims=1)
    yield E("GatherND", f(2, 3, 4), values([[[1], [0]], [[2], [1]]]), batch_dims=1)
    for reduction in ("none", "add", "mul", "max", "min"):
        indices = values([[0, -1, 2], [1, 2, 0]]) if reduction == "none" else values([[0, -1, 0], [1, 1, 1]])
        yield E("ScatterElements", f(2, 4), indices, f(2, 3), axis=1, reduction=reduction, opset=18)
        rows = values([[0], [-1]]) if reduction == "none" else values([[0], [-1], [0]])
        yield E(
            "ScatterND", f(4, 3), rows, f(2 if reduction == "none" else 3, 3), reduction=reduction, opset=18
        )
        yield E("ScatterND", f(4, 3, 2), values([[0, 1], [2, -1]]), f(2, 2), reduction=reduction, opset=18)
    yield E("ScatterElements", f(3, 3), values([[1, 0, 2], [0, 2, 1]]), f(2, 3), opset=11)
    yield exact(
        "ScatterElements",
        ints(0, 9, 4, dtype="int32"),
        values([1, 1]),
        values([5, 6], "int32"),
        reduction="add",
        opset=18,
    )
    yield E("Scatter", f(3, 3), values([[1, 0, 2], [0, 2, 1]]), f(2, 3), opset=9)
    yield E("TensorScatter", f(2, 3, 6, 4), f(2, 3, 2, 4), values([1, 3]), opset=24)
    yield E("TensorScatter", f(2, 3, 6, 4), f(2, 3, 3, 4), values([4, 5]), opset=24, mode="circular")
    yield E("TensorScatter", f(2, 6, 4), f(2, 2, 4), opset=24, axis=1)
    yield E("Compress", f(3, 4), values([True, False, True], "bool"), axis=0)
    yield E("Compress", f(3, 4), values([True, False, True], "bool"), axis=-1)
    yield E("Compress", f(3, 4), values([True, False, True, True, False], "bool"))
    yield exact("NonZero", ints(0, 1, 3, 4, dtype="int32"))
    yield exact("NonZero", bools(5))
    for axis in (-1, 0, 1):
        yield exact("OneHot", ints(-6, 6, 3, 4), values(5), values([0.0, 1.0], "float32"), axis=axis)
    yield exact("OneHot", ints(0, 4, 3, dtype="int32"), values([5]), values([2, 7], "int32"))
    for axes in ({}, {"batch_axis": 0, "time_axis": 1}):
        yield E("ReverseSequence", f(4, 4, 2), values([1, 2, 4, 3]), **axes)
    for largest in (0, 1):
        yield E("TopK", f(3, 8), values([3]), outputs=2, largest=largest)
        yield E("TopK", f(3, 8, 2), fixed([2]), outputs=2, largest=largest, axis=1)
        yield exact("TopK", values([[1, 3, 3, 2, 3, 1, 1]], "int32"), values([4]), outputs=2, largest=largest)
        yield exact(
            "TopK", values([[1, 3, 3, 2, 3, 1, 1]], "float16"), values([4]), outputs=2, largest=largest
        )
    repeated = values([2.0, 1.0, 1.0, 3.0, 4.0, 3.0], "float32")
    for order in (0, 1):
        yield exact("Unique", repeated, outputs=4, sorted=order)
        yield exact("Unique", repeated, outputs=1, sorted=1)
    yield exact("Unique", values([[1, 0, 0], [1, 0, 0], [2, 3, 4]], "int32"), outputs=4, axis=0)
    yield exact("Unique", values([[1, 1, 0], [1, 1, 0], [2, 2, 4]], "int32"), outputs=4, axis=1)
    yield exact("Unique", values([[1, 1, 0], [1, 1, 0], [2, 2, 4]], "int32"), outputs=4)


def _created() -> Iterator[Entry]:
    yield exact("Constant", value_float=1.5)
    yield exact("Constant", value_ints=[1, 2])
    yield exact("Constant", value={"dtype": "float32", "shape": [2, 1], "values": [[1.0], ["inf"]]})
    yield exact("ConstantOfShape", values([2, 3]))
    yield exact("ConstantOfShape", values([2, 3]), value={"dtype": "int32", "shape": [1], "values": [7]})
    for k in (0, 1, -2, 9):
        yield exact("EyeLike", Given((3, 4), "float32"), k=k)
    yield exact("EyeLike", ints(0, 3, 3, 4, dtype="int32"), dtype="float64")
    yield exact("Range", values(0), values(7), values(2))
    yield exact("Range", values(5.0, "float32"), values(-1.0, "float32"), values(-1.5, "float32"))
    yield exact("Range", values(5), values(1), values(2))
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield exact(op, values(8))
        yield exact(op, values(7), periodic=0)
        yield exact(op, values(7), periodic=0, output_datatype="float64")


FAMILIES = (
    _shapes,
    _indices,
    _created,
)
