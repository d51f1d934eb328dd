"""Reductions, positions of extremes, running sums."""

from __future__ import annotations

from collections.abc import Iterator

from torch_cases.table import (
    FLOATS,
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


def _reductions() -> Iterator[Entry]:
    for op in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]:
        name = f"Reduce{op}"
        x = between(0.5, 1.5, 3, 4, 5)
        for axes in ([1], [-1], [0, 2], [0, 1, 2]):
            yield E(name, x, values(axes), opset=20, dtypes=FLOATS)
            yield E(name, x, fixed(axes), keepdims=0, opset=20)
            if op != "Sum":
                yield E(name, x, axes=axes, opset=13, keepdims=0)
        yield E(name, x, opset=20)
        yield E(name, x, opset=20, keepdims=0)
        yield E(name, x, opset=20, noop_with_empty_axes=1)
        yield E(name, x, values([]), opset=20, noop_with_empty_axes=1)
        yield E(name, x, values([]), opset=20)
        yield (
            E(name, f(), opset=20, keepdims=0) if op not in ("LogSum",) else E(name, between(1, 2), opset=20)
        )
        if op not in ("LogSum", "LogSumExp"):
            yield exact(name, ints(1, 4, 3, 4, dtype="int32"), values([1]), opset=20)
    yield E("ReduceSum", f(0, 3), values([0]))
    yield E("ReduceMax", f(0, 3), values([0]), opset=20)
    yield E("ReduceMin", f(0, 3), values([0]), opset=20, keepdims=0)
    yield E("ReduceSum", f(3, 4), opset=11, axes=[0])
    yield exact("ReduceMax", bools(3, 4), values([1]), opset=20)
    yield exact("ReduceSum", values([2147483647, 1], "int32"), opset=20)
    for op in ("ArgMax", "ArgMin"):
        for axis in (0, 1, -1):
            yield E(op, f(3, 4, 5), axis=axis)
            yield E(op, f(3, 4, 5), axis=axis, keepdims=0, opset=13)
        yield exact(op, values([[3, 1, 3, 1], [2, 2, 2, 2]], "int32"), axis=1)
        yield exact(op, values([[3, 1, 3, 1], [2, 2, 2, 2]], "int32"), axis=1, select_last_index=1)
    for exclusive in (0, 1):
        for reverse in (0, 1):
            for axis in (0, -1):
                yield E("CumSum", f(3, 5), values(axis), exclusive=exclusive, reverse=reverse, dtypes=FLOATS)
                yield E("CumProd", f(3, 5), values(axis), exclusive=exclusive, reverse=reverse, opset=26)
    yield exact("CumSum", values([1073741824, 1073741824, 5], "int32"), values(0, "int32"))


FAMILIES = (_reductions,)
