"""Sampling at given places, and sums over neighbouring channels. Formulas: ONNX's Operators.md.

The evaluator (onnx 1.23) samples and makes grids in float32, clamps a bicubic window as a whole
where each of its taps is to be clamped, and its LRN covers as many channels as there are images.
"""

from __future__ import annotations

import itertools

import numpy as np

from matrix_adapters.operators.oracle_op import Array, Definition, like, wide
from matrix_adapters.operators.oracle_ops_resize import cubic

_CUBIC_A = -0.75


class GridSample(Definition):
    """x [N, C, *sizes] at grid [N, *places, rank], whose last axis counts from the last spatial one."""

    def _run(
        self,
        x: Array,
        grid: Array,
        *,
        align_corners: int = 0,
        mode: str = "linear",
        padding_mode: str = "zeros",
    ) -> tuple[Array]:
        mode = mode.removeprefix("bi")  # opset 16 says bilinear and bicubic
        rank = x.ndim - 2
        points = wide(grid).reshape(grid.shape[0], -1, rank)[..., ::-1]
        taps = [
            _taps(points[..., i], x.shape[2 + i], mode, padding_mode, bool(align_corners))
            for i in range(rank)
        ]
        images = np.moveaxis(wide(x), 1, -1)
        batch = np.arange(x.shape[0])[:, None]
        y = np.zeros((x.shape[0], points.shape[1], x.shape[1]))
        for chosen in itertools.product(*(range(index.shape[-1]) for index, _ in taps)):
            index = [taps[i][0][..., k] for i, k in enumerate(chosen)]
            weight = np.prod([taps[i][1][..., k] for i, k in enumerate(chosen)], axis=0)[..., None]
            seen = images[(batch, *index)]
            y += np.where(weight == 0, 0.0, seen * weight)
        return (like(np.moveaxis(y, -1, 1).reshape(*x.shape[:2], *grid.shape[1:-1]), x),)


class AffineGrid(Definition):
    """theta [N, rank, rank + 1] applied to the centres (or, aligned, corners) of an image's elements."""

    def _run(self, theta: Array, size: Array, *, align_corners: int = 0) -> tuple[Array]:
        sizes = [int(n) for n in size[2:]]
        lines = [_line(n, aligned=bool(align_corners)) for n in sizes]
        mesh = np.meshgrid(*lines, indexing="ij")
        points = np.stack([*mesh[::-1], np.ones(sizes)], axis=-1)
        return (like(np.einsum("nij,...j->n...i", wide(theta), points), theta),)


class LRN(Definition):
    """x / (bias + alpha / size * sum of squares over `size` channels around) ^ beta."""

    def _run(self, x: Array, *, alpha: float, beta: float, bias: float, size: int) -> tuple[Array]:
        w = wide(x)
        before, after = (size - 1) // 2, size // 2
        channels = x.shape[1]
        total = np.stack(
            [
                np.square(w[:, max(0, c - before) : min(channels, c + after + 1)]).sum(axis=1)
                for c in range(channels)
            ],
            axis=1,
        )
        return (like(w / (bias + alpha / size * total) ** beta, x),)


def _line(size: int, *, aligned: bool) -> Array:
    if aligned:
        return np.linspace(-1.0, 1.0, size)
    return (2 * np.arange(size) + 1) / size - 1


def _taps(at: Array, size: int, mode: str, padding: str, aligned: bool) -> tuple[Array, Array]:
    """Indices (inside) and weights [..., taps] along one axis for normalised coordinates `at`."""
    place = (at + 1) / 2 * (size - 1) if aligned else ((at + 1) * size - 1) / 2
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if mode == "cubic":  # every tap is moved inside by itself
        index = np.floor(place)[..., None] + np.arange(-1, 3)
        weight = cubic(place[..., None] - index, _CUBIC_A)
        return _inside(_moved(index, size, padding, low, high), weight, size)
    place = _moved(place, size, padding, low, high)
    if mode == "nearest":
        index = np.rint(place)[..., None]
        return _inside(index, np.ones(index.shape), size)
    index = np.floor(place)[..., None] + np.arange(2)
    return _inside(index, 1 - np.abs(place[..., None] - index), size)


def _moved(place: Array, size: int, padding: str, low: float, high: float) -> Array:
    """Clamped, reflected, or (zeros) left where it is."""
    if padding == "reflection":
        span = high - low
        if span == 0:
            return np.zeros_like(place)
        distance = np.abs(place - low) % (2 * span)
        place = low + np.where(distance > span, 2 * span - distance, distance)
    return place if padding == "zeros" else np.clip(place, 0, size - 1)


def _inside(index: Array, weight: Array, size: int) -> tuple[Array, Array]:
    weight = np.where((index >= 0) & (index < size), weight, 0.0)
    return np.clip(index, 0, size - 1).astype(np.int64), weight


OPERATORS = (GridSample, AffineGrid, LRN)
