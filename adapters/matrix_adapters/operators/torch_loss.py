"""Losses of classification, [N, C, ...] against [N, ...]."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator

_REDUCTIONS = ("none", "sum", "mean")
_NO_CLASS = -100  # what torch ignores where nothing is said: no valid label


def _cross_entropy(bound: Bound) -> Kernel:
    reduction = bound.text("reduction", "mean", _REDUCTIONS)
    ignored = bound.integer("ignore_index", _NO_CLASS)
    if not bound.wants(1):
        return lambda scores, labels, weights=None: F.cross_entropy(
            scores, labels.long(), weights, ignore_index=ignored, reduction=reduction
        )

    def with_log_probabilities(scores: Any, labels: Any, weights: Any = None) -> Any:
        logs = F.log_softmax(scores, 1)
        return F.nll_loss(logs, labels.long(), weights, ignore_index=ignored, reduction=reduction), logs

    return with_log_probabilities


def _nll(bound: Bound) -> Kernel:
    reduction = bound.text("reduction", "mean", _REDUCTIONS)
    ignored = bound.integer("ignore_index", _NO_CLASS)
    return lambda logs, labels, weights=None: F.nll_loss(
        logs, labels.long(), weights, ignore_index=ignored, reduction=reduction
    )


OPERATORS: dict[str, Operator] = {
    "NegativeLogLikelihoodLoss": Operator(build=_nll),
    "SoftmaxCrossEntropyLoss": Operator(build=_cross_entropy),
}
