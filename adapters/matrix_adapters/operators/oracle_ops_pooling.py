"""Pooling. Formulas: ONNX's Operators.md.

The evaluator (onnx 1.23) marks padding by NaN, so it swallows a NaN of the input, and in
ceil mode it shifts the windows by half of what the last one lacks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matrix_adapters.operators import oracle_windows as windows
from matrix_adapters.operators.oracle_op import Array, Definition, like, wide


class AveragePool(Definition):
    """The mean of what lies under the window; with `count_include_pad`, declared padding counts as zeros."""

    def _run(
        self, x: Array, *, kernel_shape: list[int], count_include_pad: int = 0, **geometry: Any
    ) -> tuple[Array]:
        spatial = windows.axes(x.shape[2:], kernel_shape, **geometry)
        values, here, padded = windows.gather(wide(x), spatial)
        counted = padded if count_include_pad else here
        total = np.where(here, values, 0.0).sum(axis=-1)
        return (like(total / counted.sum(axis=-1), x),)


class MaxPool(Definition):
    """The maximum, NaN where there is one; Indices count over the whole input, the first maximum wins."""

    def _run(
        self, x: Array, *, kernel_shape: list[int], storage_order: int = 0, **geometry: Any
    ) -> tuple[Array, ...]:
        spatial = windows.axes(x.shape[2:], kernel_shape, **geometry)
        values, here, _ = windows.gather(x, spatial)
        least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        values = np.where(here, values, np.array(least, x.dtype))
        best = values.argmax(axis=-1)
        # A window full of -inf has its first element as the maximum, never padding.
        first = np.argmax(here, axis=-1)
        lies_here = np.take_along_axis(np.broadcast_to(here, values.shape), best[..., None], -1)[..., 0]
        best = np.where(lies_here, best, first)
        y = np.take_along_axis(values, best[..., None], -1)[..., 0]
        flat = windows.places(spatial, column_major=bool(storage_order))
        indices = np.take_along_axis(np.broadcast_to(flat, values.shape), best[..., None], -1)[..., 0]
        image = math.prod(x.shape[2:])
        offset = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(spatial)) * image
        return like(y, x), (indices + offset).astype(np.int64)


class LpPool(Definition):
    """(sum |x|^p)^(1/p) under the window; padding is zeros."""

    def _run(self, x: Array, *, kernel_shape: list[int], p: int, **geometry: Any) -> tuple[Array]:
        spatial = windows.axes(x.shape[2:], kernel_shape, **geometry)
        values, here, _ = windows.gather(wide(x), spatial)
        powers = np.where(here, np.abs(values), 0.0) ** p
        return (like(powers.sum(axis=-1) ** (1.0 / p), x),)


class GlobalLpPool(Definition):
    """The same over the whole image. The evaluator has none."""

    def _run(self, x: Array, *, p: int, **_: Any) -> tuple[Array]:
        over = tuple(range(2, x.ndim))
        return (like((np.abs(wide(x)) ** p).sum(axis=over, keepdims=True) ** (1.0 / p), x),)


class GlobalMaxPool(Definition):
    """The maximum of the whole image. The evaluator gives the right shape for two axes only."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


OPERATORS = (AveragePool, MaxPool, LpPool, GlobalLpPool, GlobalMaxPool)
