"""Operators that move elements. Formulas: ONNX's Operators.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matrix_adapters.operators.oracle_op import Array, Definition


class Pad(Definition):
    """Negative pads cut, positive ones add, in this order. The evaluator refuses negative ones."""

    def _run(
        self,
        x: Array,
        pads: Array,
        value: Array | None = None,
        axes: Array | None = None,
        *,
        mode: str,
        **_: Any,
    ) -> tuple[Array]:
        which = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in np.ravel(axes)]
        amounts = [int(amount) for amount in np.ravel(pads)]
        before, after = [0] * x.ndim, [0] * x.ndim
        for i, axis in enumerate(which):
            before[axis], after[axis] = amounts[i], amounts[i + len(amounts) // 2]
        cut = tuple(
            slice(max(-b, 0), size - max(-a, 0)) for b, a, size in zip(before, after, x.shape, strict=True)
        )
        added = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
        if mode != "constant":
            return (np.pad(x[cut], added, mode=mode),)  # type: ignore[call-overload]
        fill = np.zeros((), x.dtype) if value is None or not np.size(value) else np.reshape(value, ())
        return (np.pad(x[cut], added, constant_values=fill.astype(x.dtype)),)


class Flatten(Definition):
    """Two axes: those before `axis`, and the rest. The evaluator cannot do it without elements."""

    def _run(self, x: Array, *, axis: int, **_: Any) -> tuple[Array]:
        axis = axis + x.ndim if axis < 0 else axis
        return (x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),)


class GatherElements(Definition):
    """The element whose index along `axis` is the given one. The evaluator knows no negative axis, and
    no indices that have fewer elements along another axis than the data.
    """

    def _run(self, x: Array, indices: Array, *, axis: int, **_: Any) -> tuple[Array]:
        places: list[Array] = list(np.indices(indices.shape))
        places[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
        return (x[tuple(places)],)


OPERATORS = (Pad, Flatten, GatherElements)
