"""Convolutions, one kernel place after the other: small, slow enough, and plainly the formula.

Formulas: Conv and ConvTranspose in ONNX's Operators.md. The evaluator's (onnx 1.23) grouped
ConvTranspose slices its weights along the wrong axis; its Conv builds a matrix of all windows,
which does not fit in memory for layers of real models.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from matrix_adapters.operators import oracle_windows as windows
from matrix_adapters.operators.oracle_op import Array, Definition, like, wide


class Conv(Definition):
    """y[n, m] = b[m] + sum over c, k of x[n, c, place + k] * w[m, c, k], by group."""

    def _run(
        self,
        x: Array,
        w: Array,
        b: Array | None = None,
        *,
        group: int = 1,
        kernel_shape: list[int] | None = None,
        **geometry: Any,
    ) -> tuple[Array]:
        del kernel_shape  # that of the weights
        y = convolve(wide(x), wide(w), group, **geometry)
        return (like(y if b is None else y + _by_channel(wide(b), x.ndim), x),)


class ConvTranspose(Definition):
    """y[n, m, place * stride + k * dilation - pad] += x[n, c, place] * w[c, m, k], by group."""

    def _run(
        self,
        x: Array,
        w: Array,
        b: Array | None = None,
        *,
        auto_pad: str = "NOTSET",
        dilations: list[int] | None = None,
        group: int = 1,
        kernel_shape: list[int] | None = None,
        output_padding: list[int] | None = None,
        output_shape: list[int] | None = None,
        pads: list[int] | None = None,
        strides: list[int] | None = None,
    ) -> tuple[Array]:
        del kernel_shape
        rank = x.ndim - 2
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        extra = output_padding or [0] * rank
        kernel = w.shape[2:]
        full = [
            strides[i] * (x.shape[2 + i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
            for i in range(rank)
        ]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER") and not output_shape:
            output_shape = [x.shape[2 + i] * strides[i] for i in range(rank)]
        if output_shape:
            sizes = list(output_shape)[-rank:]
            begins = [_begin(full[i] - sizes[i], upper=auto_pad == "SAME_UPPER") for i in range(rank)]
        else:
            pads = pads or [0] * (2 * rank)
            begins = pads[:rank]
            sizes = [full[i] - pads[i] - pads[rank + i] for i in range(rank)]
        y = np.concatenate(
            [
                _scatter(part, weights, full, strides, dilations)
                for part, weights in zip(
                    np.split(wide(x), group, axis=1), np.split(wide(w), group), strict=True
                )
            ],
            axis=1,
        )
        cut = _cropped(y, begins, sizes)
        return (like(cut if b is None else cut + _by_channel(wide(b), x.ndim), x),)


def convolve(x: Array, w: Array, group: int, **geometry: Any) -> Array:
    """x [N, C, *], w [M, C / group, *] -> [N, M, *] in the type that products of theirs have."""
    spatial = windows.axes(x.shape[2:], w.shape[2:], **geometry)
    padding = [(axis.begin, axis.end) for axis in spatial]
    padded = np.pad(x, [(0, 0), (0, 0), *padding])
    counts = tuple(axis.windows for axis in spatial)
    y = np.zeros((x.shape[0], w.shape[0], *counts), np.result_type(x, w))
    parts = zip(np.split(padded, group, axis=1), np.split(w, group), np.split(y, group, axis=1), strict=True)
    for images, weights, target in parts:
        for place in itertools.product(*(range(axis.kernel) for axis in spatial)):
            slices = [
                slice(k * a.dilation, k * a.dilation + (a.windows - 1) * a.stride + 1, a.stride)
                for k, a in zip(place, spatial, strict=True)
            ]
            seen = images[(slice(None), slice(None), *slices)]
            part = np.tensordot(_at(weights, place), seen, (1, 1))
            np.add(target, np.moveaxis(part, 0, 1), out=target)
    return y


def _scatter(
    x: Array, w: Array, full: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Array:
    y = np.zeros((x.shape[0], w.shape[1], *full))
    for place in itertools.product(*(range(n) for n in w.shape[2:])):
        slices = [
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, d, s, n in zip(place, dilations, strides, x.shape[2:], strict=True)
        ]
        part = np.tensordot(_at(w, place), x, (0, 1))
        y[(slice(None), slice(None), *slices)] += np.moveaxis(part, 0, 1)
    return y


def _at(weights: Array, place: tuple[int, ...]) -> Array:
    """The weights of one place of the kernel, [M, C]."""
    index: Any = (..., *place)
    return np.asarray(weights[index])


def _begin(total: int, *, upper: bool) -> int:
    """How much of the total padding lies at the beginning; a negative total adds elements at the end.

    Of a negative total the text says nothing that holds (it divides -1 by 2); ONNX's own node
    test `convtranspose_output_shape` has what is missing at the end.
    """
    total = max(total, 0)
    return total // 2 if upper else total - total // 2


def _cropped(y: Array, begins: Sequence[int], sizes: Sequence[int]) -> Array:
    """`sizes` elements from `begins` on; what lies outside of y is 0."""
    made = np.zeros((*y.shape[:2], *sizes))
    into, out_of = [slice(None)] * 2, [slice(None)] * 2
    for begin, size, have in zip(begins, sizes, y.shape[2:], strict=True):
        first, last = max(begin, 0), min(begin + size, have)
        out_of.append(slice(first, last))
        into.append(slice(first - begin, last - begin))
    made[tuple(into)] = y[tuple(out_of)]
    return made


def _by_channel(b: Array, rank: int) -> Array:
    return b.reshape(-1, *[1] * (rank - 2))


OPERATORS = (Conv, ConvTranspose)
