"""Softmax and its kin, and normalisation by a p-norm. Formulas: ONNX's Operators.md and Changelog.md.

Up to opset 12 the input was flattened to two dimensions at `axis`; since 13 `axis` is the one axis.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matrix_adapters.operators.oracle_op import Array, Definition, like, wide


class Softmax(Definition):
    """e^x / sum e^x. The evaluator knows the rule of opset 13 only."""

    def _run(self, x: Array, *, axis: int, **_: Any) -> tuple[Array]:
        if not x.size:
            return (x,)
        rows, along = _rows(wide(x), axis, self.since)
        powers = np.exp(rows - rows.max(axis=along, keepdims=True))
        return (like((powers / powers.sum(axis=along, keepdims=True)).reshape(x.shape), x),)


class LogSoftmax(Definition):
    """x - ln sum e^x. The evaluator takes the logarithm of a softmax, which underflows to -inf."""

    def _run(self, x: Array, *, axis: int, **_: Any) -> tuple[Array]:
        if not x.size:
            return (x,)
        rows, along = _rows(wide(x), axis, self.since)
        shifted = rows - rows.max(axis=along, keepdims=True)
        return (like((shifted - np.log(np.exp(shifted).sum(axis=along, keepdims=True))).reshape(x.shape), x),)


class Hardmax(Definition):
    """1 at the first maximum, else 0. The evaluator knows the rule of opset 13 only."""

    def _run(self, x: Array, *, axis: int, **_: Any) -> tuple[Array]:
        if not x.size:
            return (x,)
        rows, along = _rows(x, axis, self.since)
        made = np.zeros(rows.shape)
        np.put_along_axis(made, np.expand_dims(rows.argmax(axis=along), along), 1.0, axis=along)
        return (like(made.reshape(x.shape), x),)


class LpNormalization(Definition):
    """x / (sum |x|^p)^(1/p), 0 where the norm is 0. The evaluator sums x^p without the absolute value."""

    def _run(self, x: Array, *, axis: int, p: int, **_: Any) -> tuple[Array]:
        w = wide(x)
        norm = (np.abs(w) ** p).sum(axis=axis, keepdims=True) ** (1.0 / p)
        return (like(np.where(norm == 0, 0.0, w / np.where(norm == 0, 1.0, norm)), x),)


def _rows(x: Array, axis: int, since: int) -> tuple[Array, int]:
    if since >= 13:
        return x, axis
    axis = axis % x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), -1), 1


OPERATORS = (Softmax, LogSoftmax, Hardmax, LpNormalization)
