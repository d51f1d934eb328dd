"""Losses of scores and labels. Formulas: ONNX's Operators.md.

Labels are class numbers; axis 1 of the scores is the classes. A label that is `ignore_index` has
no share in anything, wherever that number lies.
"""

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
        loss = _loss(log_prob, labels, weights, reduction, ignore_index)
        results = (like(loss, scores), like(log_prob, scores))
        return results[: len(self.onnx_node.output)]


class NegativeLogLikelihoodLoss(Definition):
    """- the score at the label, weighted and reduced as above.

    The evaluator (onnx 1.23) takes an `ignore_index` of -1 for none in what the mean divides by.
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
    ) -> tuple[Array]:
        return (like(_loss(wide(scores), labels, weights, reduction, ignore_index), scores),)


def _loss(
    log_prob: Array, labels: Array, weights: Array | None, reduction: str, ignore_index: int | None
) -> Array:
    """float64; of the labels' shape, or one number. The mean over nothing is 0 / 0."""
    ignored = np.zeros(labels.shape, bool) if ignore_index is None else labels == ignore_index
    known = np.where(ignored, 0, labels).astype(np.int64)
    weight = np.ones(log_prob.shape[1]) if weights is None else wide(weights)
    share = np.where(ignored, 0.0, weight[known])
    at_label = np.take_along_axis(log_prob, np.expand_dims(known, 1), axis=1)[:, 0]
    loss = np.where(ignored, 0.0, -at_label * share)
    if reduction == "none":
        return loss
    total = np.asarray(loss.sum())
    return total if reduction == "sum" else total / share.sum()


OPERATORS = (SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss)
