"""Normalisations, and softmax and its relatives."""

from __future__ import annotations

import math
from typing import Any

from matrix_adapters.operators import tensorflow_spatial as spatial
from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

_HALVES = ("float16", "bfloat16")


@TABLE.add("Softmax", "LogSoftmax", attributes="axis")
def _softmax(site: Site) -> Call:
    tf = site.tf
    function = tf.nn.softmax if site.node.op == "Softmax" else tf.nn.log_softmax
    return _along(site, lambda x, axis: function(x, axis=axis))


@TABLE.add("Hardmax", attributes="axis")
def _hardmax(site: Site) -> Call:
    tf, dtype = site.tf, site.dtype()

    def hardmax(x: Any, axis: int) -> Any:
        return tf.one_hot(tf.argmax(x, axis), x.shape[axis], axis=axis, dtype=dtype)

    return _along(site, hardmax)


def _along(site: Site, function: Call) -> Call:
    """Along one axis; before opset 13, along all from this axis on as if they were one."""
    tf = site.tf
    if site.opset >= 13:
        axis = site.axis(site.get("axis", -1))
        return lambda x: function(x, axis)
    shape, axis = site.shape(), site.axis(site.get("axis", 1))
    rows = math.prod(shape[:axis])
    return lambda x: tf.reshape(function(tf.reshape(x, (rows, -1)), 1), shape)


@TABLE.add("BatchNormalization", attributes="epsilon momentum training_mode spatial")
def _batch_normalization(site: Site) -> Call:
    """Scale, offset and statistics are one number a channel, in place wherever the channels lie."""
    tf, epsilon = site.tf, site.real("epsilon", 1e-5)
    rank, shape = site.rank(), _per_channel(site)
    if not site.get("training_mode", 0):
        if site.wants(1):
            raise site.refusal("statistics as outputs outside training")

        def infer(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
            each = [tf.reshape(n, shape) for n in (mean, variance, offset, scale)]
            return _as(tf, tf.nn.batch_normalization(x, *_alike(tf, x, each), epsilon), x)

        return infer
    momentum, axes = site.real("momentum", 0.9), tuple(n for n in range(rank) if n != _channel(site))

    def train(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> tuple[Any, ...]:
        now_mean, now_variance = tf.nn.moments(x, axes)
        each = [tf.reshape(n, shape) for n in (now_mean, now_variance, offset, scale)]
        y = _as(tf, tf.nn.batch_normalization(x, *_alike(tf, x, each), epsilon), x)
        kept = [
            old * momentum + tf.cast(new, old.dtype) * (1 - momentum)
            for old, new in ((mean, now_mean), (variance, now_variance))
        ]
        return (y, *kept)

    return train


@TABLE.add("InstanceNormalization", attributes="epsilon")
def _instance_normalization(site: Site) -> Call:
    """In float32 where the data have 16 bits, as Keras does it: a float16 has no room for the squares."""
    tf, epsilon, shape = site.tf, site.real("epsilon", 1e-5), _per_channel(site)
    rank, wide = spatial.data(site).rank, _stash(site)
    axes = range(1, rank + 1) if site.channels_last else range(2, rank + 2)

    def call(x: Any, scale: Any, offset: Any) -> Any:
        whole = tf.cast(x, wide)
        mean, variance = tf.nn.moments(whole, tuple(axes), keepdims=True)
        scale, offset = (tf.cast(tf.reshape(n, shape), wide) for n in (scale, offset))
        return _as(tf, tf.nn.batch_normalization(whole, mean, variance, offset, scale, epsilon), x)

    return call


@TABLE.add("GroupNormalization", attributes="epsilon num_groups stash_type")
def _group_normalization(site: Site) -> Call:
    """Scale and offset are one number a channel; before opset 21, one a group."""
    tf, epsilon, groups = site.tf, site.real("epsilon", 1e-5), int(site.get("num_groups"))
    if site.get("stash_type", 1) != 1:
        raise site.refusal("a stash_type other than float32")
    channels = site.shape()[_channel(site)]
    size, each = site.shape(), channels // groups
    wide = _stash(site)
    if site.channels_last:
        split = (*size[:-1], groups, each)
        axes: tuple[int, ...] = (*range(1, len(size) - 1), len(size))
        place: tuple[int, ...] = (groups, each if site.opset >= 21 else 1)
    else:
        split = (size[0], groups, each, *size[2:])
        axes = tuple(range(2, len(size) + 1))
        place = (groups, each if site.opset >= 21 else 1, *(1 for _ in size[2:]))

    def call(x: Any, scale: Any, offset: Any) -> Any:
        parts = tf.cast(tf.reshape(x, split), wide)
        mean, variance = tf.nn.moments(parts, axes, keepdims=True)
        scale, offset = (tf.cast(tf.reshape(n, place), wide) for n in (scale, offset))
        y = tf.nn.batch_normalization(parts, mean, variance, offset, scale, epsilon)
        return _as(tf, tf.reshape(y, size), x)

    return call


@TABLE.add("LayerNormalization", attributes="axis epsilon stash_type")
def _layer_normalization(site: Site) -> Call:
    """In float32 where the data have 16 bits; then scaled in their own type, as the standard has it."""
    tf, epsilon = site.tf, site.real("epsilon", 1e-5)
    if site.get("stash_type", 1) != 1:
        raise site.refusal("a stash_type other than float32")
    # Counted from behind, as Keras does it. Counted from the front, TensorFlow 2.21 fuses the same with
    # constant scale and offset into a kernel of oneDNN's that forgets the epsilon: an error of 2e-3.
    axes = tuple(range(site.axis(site.get("axis", -1)) - site.rank(), 0))
    wide, half = _stash(site), site.dtype() in _HALVES
    statistics = site.wants(1) or site.wants(2)

    def call(x: Any, scale: Any, offset: Any = None) -> Any:
        whole = tf.cast(x, wide)
        mean, variance = tf.nn.moments(whole, axes, keepdims=True)
        if half:
            y = _as(tf, tf.nn.batch_normalization(whole, mean, variance, None, None, epsilon), x) * scale
            y = y if offset is None else y + offset
        else:
            y = tf.nn.batch_normalization(whole, mean, variance, offset, scale, epsilon)
        if not statistics:
            return y
        return y, tf.cast(mean, "float32"), tf.cast(tf.math.rsqrt(variance + epsilon), "float32")

    return call


@TABLE.add("RMSNormalization", attributes="axis epsilon stash_type")
def _rms_normalization(site: Site) -> Call:
    tf, epsilon = site.tf, site.real("epsilon", 1e-5)
    if site.get("stash_type", 1) != 1:
        raise site.refusal("a stash_type other than float32")
    axes = tuple(range(site.axis(site.get("axis", -1)), site.rank()))
    wide = _stash(site)

    def call(x: Any, scale: Any) -> Any:
        whole = tf.cast(x, wide)
        mean = tf.reduce_mean(tf.square(whole), axes, keepdims=True)
        return _as(tf, whole * tf.math.rsqrt(mean + epsilon), x) * scale

    return call


@TABLE.add("LRN", attributes="alpha beta bias size")
def _lrn(site: Site) -> Call:
    """TensorFlow's own where the window is symmetric and the type has a kernel, else sums of neighbours."""
    tf, size = site.tf, int(site.get("size"))
    alpha, beta, bias = site.real("alpha", 1e-4), site.real("beta", 0.75), site.real("bias", 1.0)
    rank = spatial.data(site).rank
    before = (size - 1) // 2
    after = size - 1 - before
    if before == after and rank == 2 and site.dtype() in ("float32", "float16"):

        def own(x: Any) -> Any:
            return tf.nn.local_response_normalization(x, before, bias, alpha / size, beta)

        return spatial.in_own_layout(site, rank, own)
    pads = [*([0, 0] for _ in range(rank + 1)), [before, after]]

    def call(x: Any) -> Any:
        squares = tf.pad(tf.square(x), pads)
        channels = x.shape[-1]
        total = tf.add_n([squares[..., n : n + channels] for n in range(size)])
        return x / tf.pow(bias + alpha / size * total, beta)

    return spatial.in_own_layout(site, rank, call)


@TABLE.add("LpNormalization", attributes="axis p")
def _lp_normalization(site: Site) -> Call:
    """A vector of zeros stays one."""
    tf, axis, p = site.tf, site.axis(site.get("axis", -1)), int(site.get("p", 2))
    if p not in (1, 2):
        raise site.refusal(f"the {p}-norm")
    return lambda x: tf.math.divide_no_nan(x, tf.norm(x, ord=p, axis=axis, keepdims=True))


@TABLE.add("MeanVarianceNormalization", attributes="axes")
def _mean_variance_normalization(site: Site) -> Call:
    """The 1e-9 is that of the standard's function body, added to the deviation."""
    tf, axes = site.tf, site.ints("axes", (0, 2, 3))

    def call(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, axes, keepdims=True)
        return (x - mean) / (tf.sqrt(variance) + 1e-9)

    return call


def _channel(site: Site) -> int:
    return site.rank() - 1 if site.channels_last else 1


def _per_channel(site: Site) -> tuple[int, ...]:
    """The shape that lays one number a channel over the data."""
    return (-1,) if site.channels_last else (-1, *(1 for _ in range(site.rank() - 2)))


def _stash(site: Site) -> str:
    """The type of the statistics."""
    return "float32" if site.dtype() in _HALVES else site.dtype()


def _alike(tf: Any, x: Any, tensors: list[Any]) -> list[Any]:
    return [n if n.dtype == x.dtype else tf.cast(n, x.dtype) for n in tensors]


def _as(tf: Any, y: Any, x: Any) -> Any:
    return y if y.dtype == x.dtype else tf.cast(y, x.dtype)
