"""The Reduce operators, all by one rule. Formulas: ONNX's Operators.md.

The evaluator widens small integers (ReduceSumSquare of int32 gives int64), and its
ReduceLogSumExp is NaN beside an infinity. Here sums of integers wrap in their own type, as
the standard's types say; a mean or a root of integers is cut towards zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from matrix_adapters.operators.oracle_op import Array, Definition, like, wide

Axes = tuple[int, ...] | None


class _Reduction(Definition):
    """`axes` is an attribute in older opsets and an input in newer ones; absent means all axes."""

    def _run(
        self,
        x: Array,
        given: Array | None = None,
        *,
        keepdims: int,
        axes: Any = None,
        noop_with_empty_axes: int = 0,
    ) -> tuple[Array]:
        chosen: Any = axes if given is None else np.asarray(given).ravel().tolist()
        over: Axes = tuple(int(axis) for axis in chosen) if chosen is not None else ()
        if not over and not noop_with_empty_axes:
            over = None
        with np.errstate(all="ignore"):
            return (like(self.reduce(x, over, bool(keepdims)), x),)

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        raise NotImplementedError


class ReduceSum(_Reduction):
    """sum x."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.sum(x, axis=axes, keepdims=keep, dtype=_accumulator(x)))


class ReduceProd(_Reduction):
    """product of x."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.prod(x, axis=axes, keepdims=keep, dtype=_accumulator(x)))


class ReduceSumSquare(_Reduction):
    """sum x^2."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.sum(np.square(_own(x)), axis=axes, keepdims=keep, dtype=_accumulator(x)))


class ReduceL1(_Reduction):
    """sum |x|."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.sum(np.abs(_own(x)), axis=axes, keepdims=keep, dtype=_accumulator(x)))


class ReduceL2(_Reduction):
    """sqrt(sum x^2)."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.sqrt(np.sum(np.square(wide(x)), axis=axes, keepdims=keep)))


class ReduceMean(_Reduction):
    """sum x / n; of nothing NaN."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.trunc(_mean(x, axes, keep)) if x.dtype.kind in "iu" else _mean(x, axes, keep))


class ReduceMax(_Reduction):
    """max x; of nothing the least value."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.max(x, axis=axes, keepdims=keep, initial=_least(x)))


class ReduceMin(_Reduction):
    """min x; of nothing the greatest value."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.min(x, axis=axes, keepdims=keep, initial=_greatest(x)))


class ReduceLogSum(_Reduction):
    """ln sum x."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        return np.asarray(np.log(np.sum(wide(x), axis=axes, keepdims=keep)))


class ReduceLogSumExp(_Reduction):
    """max + ln sum e^(x - max): the shift cancels; where the maximum is infinite there is none."""

    def reduce(self, x: Array, axes: Axes, keep: bool) -> Array:
        w = wide(x)
        top = np.max(w, axis=axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(top), top, 0.0)
        total = np.log(np.sum(np.exp(w - shift), axis=axes, keepdims=True)) + shift
        return np.asarray(total if keep else total.reshape(np.sum(w, axis=axes).shape))


def _mean(x: Array, axes: Axes, keep: bool) -> Array:
    return np.asarray(np.mean(wide(x), axis=axes, keepdims=keep))


def _own(x: Array) -> Array:
    return x if x.dtype.kind in "iu" else wide(x)


def _accumulator(x: Array) -> Any:
    return x.dtype if x.dtype.kind in "iu" else np.float64


def _least(x: Array) -> Any:
    if x.dtype.kind == "b":
        return False
    return np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf


def _greatest(x: Array) -> Any:
    if x.dtype.kind == "b":
        return True
    return np.iinfo(x.dtype).max if x.dtype.kind in "iu" else np.inf


OPERATORS = (
    ReduceSum,
    ReduceProd,
    ReduceSumSquare,
    ReduceL1,
    ReduceL2,
    ReduceMean,
    ReduceMax,
    ReduceMin,
    ReduceLogSum,
    ReduceLogSumExp,
)
