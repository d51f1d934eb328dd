"""Losses over classes, which ONNX has in the second dimension and TensorFlow in the last."""

from __future__ import annotations

from typing import Any

from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

_ATTRIBUTES = "ignore_index reduction"


@TABLE.add("SoftmaxCrossEntropyLoss", attributes=_ATTRIBUTES)
def _softmax_cross_entropy(site: Site) -> Call:
    tf, last, reduce = site.tf, _classes_last(site), _reducer(site)
    with_log = site.wants(1)

    def call(scores: Any, labels: Any, weights: Any = None) -> Any:
        safe, kept = _kept(site, labels)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(safe, last(scores))
        loss = reduce(losses, safe, kept, weights)
        return (loss, tf.nn.log_softmax(scores, 1)) if with_log else loss

    return call


@TABLE.add("NegativeLogLikelihoodLoss", attributes=_ATTRIBUTES)
def _negative_log_likelihood(site: Site) -> Call:
    tf, last, reduce, inner = site.tf, _classes_last(site), _reducer(site), site.rank() - 1

    def call(scores: Any, labels: Any, weights: Any = None) -> Any:
        safe, kept = _kept(site, labels)
        losses = -tf.gather(last(scores), safe, axis=inner, batch_dims=inner)
        return reduce(losses, safe, kept, weights)

    return call


def _classes_last(site: Site) -> Call:
    tf, rank = site.tf, site.rank()
    if rank == 2:
        return lambda x: x
    order = (0, *range(2, rank), 1)
    return lambda x: tf.transpose(x, order)


def _kept(site: Site, labels: Any) -> tuple[Any, Any]:
    """Labels without the one to ignore (0 in its place), and where it was not; None: nothing is ignored."""
    tf, ignored = site.tf, site.get("ignore_index")
    if ignored is None:
        return labels, None
    kept = tf.not_equal(labels, tf.constant(ignored, labels.dtype))
    return tf.where(kept, labels, tf.zeros_like(labels)), kept


def _reducer(site: Site) -> Call:
    """A mean weighs each loss by its class's weight, and leaves out the ignored ones."""
    tf, reduction = site.tf, site.get("reduction", "mean")
    if reduction not in ("none", "sum", "mean"):
        raise site.refusal(f"no reduction {reduction!r}")

    def call(losses: Any, labels: Any, kept: Any, weights: Any) -> Any:
        share = None if weights is None else tf.gather(weights, labels)
        if kept is not None:
            share = tf.ones_like(losses) if share is None else share
            share = tf.where(kept, share, tf.zeros_like(share))
        if share is not None:
            losses = losses * share
        if reduction == "none":
            return losses
        if reduction == "sum":
            return tf.reduce_sum(losses)
        if share is None:
            return tf.reduce_mean(losses)
        return tf.reduce_sum(losses) / tf.reduce_sum(share)

    return call
