"""Cross entropy of scores. Formula: ONNX's Operators.md."""

from __future__ import annotations

from typing import Any

import numpy as np

from matrix_adapters.operators.oracle_op import Array, Definition, like, wide


class SoftmaxCrossEntropyLoss(Definition):
    """-ln softmax at the label, weighted by the label's class; the mean divides by the sum of weights.

    The evaluator takes the logarithm of a softmax: large scores underflow, and the loss is infinite.
    """

    def _run(
        self,
        scores: Array,
        labels: Array,
        weights: Array | None = None,
        *,
        reduction: str,
        ignore_index: int | None = None,
        **_: Any,
    ) -> tuple[Array, ...]:
        shifted = wide(scores) - wide(scores).max(axis=1, keepdims=True)
        log_prob = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        ignored = np.zeros(labels.shape, bool) if ignore_index is None else labels == ignore_index
        known = np.where(ignored, 0, labels).astype(np.int64)
        weight = np.ones(scores.shape[1]) if weights is None else wide(weights)
        share = np.where(ignored, 0.0, weight[known])
        at_label = np.take_along_axis(log_prob, np.expand_dims(known, 1), axis=1)[:, 0]
        loss = np.where(ignored, 0.0, -at_label * share)
        if reduction == "sum":
            loss = loss.sum()
        elif reduction == "mean":
            loss = loss.sum() / share.sum()
        results = (like(loss, scores), like(log_prob, scores))
        return results[: len(self.onnx_node.output)]


OPERATORS = (SoftmaxCrossEntropyLoss,)
