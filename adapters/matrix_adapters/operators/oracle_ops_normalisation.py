"""Normalisations that the evaluator (onnx 1.23) computes with float32 constants or wrongly.

Formulas: the operators' own text in ONNX's Operators.md and Changelog.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from matrix_adapters.operators.oracle_op import Array, Definition, like, wide


class BatchNormalization(Definition):
    """scale * (x - mean) / sqrt(var + epsilon) + bias, by channel.

    The evaluator's for opsets 9 to 13 computes training statistics in inference.
    In training mode (since 14) mean and variance are the batch's own, population variance, and
    the running ones come out as running * momentum + current * (1 - momentum).
    """

    def _run(
        self,
        x: Array,
        scale: Array,
        bias: Array,
        mean: Array,
        var: Array,
        *,
        epsilon: float,
        momentum: float,
        training_mode: int = 0,
        spatial: int = 1,
        is_test: int = 1,
    ) -> tuple[Array, ...]:
        if (
            self.since < 9
            or not spatial
            or not is_test
            or (self.since < 14 and len(self.onnx_node.output) > 1)
        ):
            raise NotImplementedError("BatchNormalization before opset 9, or in training before opset 14")
        w = wide(x)
        if not training_mode:
            return (like(_affine(w, wide(mean), wide(var), scale, bias, epsilon=epsilon), x),)
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        current_mean, current_var = w.mean(axis=axes), w.var(axis=axes)
        y = _affine(w, current_mean, current_var, scale, bias, epsilon=epsilon)
        running_mean = wide(mean) * momentum + current_mean * (1 - momentum)
        running_var = wide(var) * momentum + current_var * (1 - momentum)
        return like(y, x), like(running_mean, mean), like(running_var, var)


class GroupNormalization(Definition):
    """Normalised over each group of channels, then scaled: by group in opset 18, by channel since 21."""

    def _run(
        self, x: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int, **_: Any
    ) -> tuple[Array]:
        w = wide(x)
        batch, channels = x.shape[:2]
        grouped = w.reshape(batch, num_groups, -1)
        mean = grouped.mean(axis=2, keepdims=True)
        var = grouped.var(axis=2, keepdims=True)
        normal = ((grouped - mean) / np.sqrt(var + epsilon)).reshape(x.shape)
        repeats = channels // num_groups if self.since < 21 else 1
        factors = [np.repeat(wide(part), repeats) for part in (scale, bias)]
        factor, offset = (part.reshape(-1, *[1] * (x.ndim - 2)) for part in factors)
        return (like(normal * factor + offset, x),)


class MeanVarianceNormalization(Definition):
    """(x - mean) / (sqrt(E x^2 - (E x)^2) + 1e-9), over `axes`: the function's own body."""

    def _run(self, x: Array, *, axes: list[int] | None = None, **_: Any) -> tuple[Array]:
        w = wide(x)
        over = tuple((0, 2, 3) if axes is None else axes)
        mean = w.mean(axis=over, keepdims=True)
        return (like((w - mean) / (np.sqrt(w.var(axis=over, keepdims=True)) + 1e-9), x),)


def _affine(x: Array, mean: Array, var: Array, scale: Array, bias: Array, *, epsilon: float) -> Array:
    by_channel = (-1, *[1] * (x.ndim - 2))
    centred = x - mean.reshape(by_channel)
    scaled: Array = wide(scale).reshape(by_channel) * centred / np.sqrt(var.reshape(by_channel) + epsilon)
    return scaled + wide(bias).reshape(by_channel)


OPERATORS = (BatchNormalization, GroupNormalization, MeanVarianceNormalization)
