"""Attention and rotary embedding. TensorFlow has no function for either: both are composed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matrix_adapters.operators.tensorflow_cast import dtype_word
from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

#: what the fourth output holds, by `qk_matmul_output_mode`
_SCORES, _CAPPED, _MASKED, _PROBABILITIES = range(4)


@TABLE.add(
    "Attention",
    attributes="is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode "
    "right_window_size scale softcap softmax_precision",
)
def _attention(site: Site) -> Call:
    """Softmax(q k' scale, capped, masked) v; a query that may see no key gives zeros.

    Heads as a dimension of their own (rank 4), or side by side in the last one (rank 3).
    """
    tf, flat = site.tf, site.rank() == 3
    q_heads = int(site.get("q_num_heads") or site.shape()[1])
    kv_heads = int(site.get("kv_num_heads") or site.shape(1)[1])
    split_q, split_kv = _heads(tf, q_heads, flat), _heads(tf, kv_heads, flat)
    head = site.shape()[-1] // (q_heads if flat else 1)
    scale, cap = site.real("scale", 0) or 1 / math.sqrt(head), site.real("softcap", 0)
    repeats = q_heads // kv_heads
    length, masked = site.shape()[-2], _masks(site)
    given = site.get("softmax_precision")
    precision = dtype_word(site, given) if given else site.dtype()
    mode, more = int(site.get("qk_matmul_output_mode") or 0), len(site.node.outputs) > 1

    def call(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        mask, past_k, past_v, lengths = (*rest, None, None, None, None)[:4]
        q, k, v = split_q(q), split_kv(k), split_kv(v)
        if past_k is not None:
            k, v = tf.concat([past_k, k], 2), tf.concat([past_v, v], 2)
        keys, values = (tf.repeat(n, repeats, 1) if repeats > 1 else n for n in (k, v))
        scores = tf.linalg.matmul(q * scale, keys, transpose_b=True)
        capped = cap * tf.tanh(scores / cap) if cap else scores
        limited, nothing = masked(capped, mask, lengths)
        probabilities = tf.cast(tf.nn.softmax(tf.cast(limited, precision)), q.dtype)
        if nothing is not None:
            probabilities = tf.where(nothing, tf.zeros_like(probabilities), probabilities)
        y = tf.linalg.matmul(probabilities, values)
        y = tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (y.shape[0], length, -1)) if flat else y
        return (y, k, v, (scores, capped, limited, probabilities)[mode]) if more else y

    return call


def _heads(tf: Any, heads: int, flat: bool) -> Call:
    """[batch, length, heads * size] -> [batch, heads, length, size]."""
    if not flat:
        return lambda x: x
    return lambda x: tf.transpose(
        tf.reshape(x, (x.shape[0], x.shape[1], heads, x.shape[2] // heads)), (0, 2, 1, 3)
    )


def _masks(site: Site) -> Call:
    """(scores, mask, lengths) -> scores with -inf where a key is not seen, and which queries see none."""
    tf, window = site.tf, _window(site)
    queries, keys = site.shape()[-2], site.shape(1)[-2] + (site.shape(4)[2] if site.has(4) else 0)
    past = keys - site.shape(1)[-2]
    # Key minus query, counted from the first key.
    distance = np.arange(keys) - np.arange(queries)[:, np.newaxis] - past
    fixed = _seen(distance, window) if window and not site.has(6) else None
    blind = None if fixed is None or fixed.any(-1).all() else ~fixed.any(-1, keepdims=True)

    def call(scores: Any, mask: Any, lengths: Any) -> tuple[Any, Any]:
        infinity = tf.constant(float("-inf"), scores.dtype)
        seen = None if fixed is None else tf.constant(fixed)
        if lengths is not None:
            ends = tf.reshape(tf.cast(lengths, "int32"), (-1, 1, 1, 1))
            seen = tf.range(keys) < ends
            if window:
                place = tf.constant(distance, "int32") - (ends - queries)
                seen = tf.logical_and(seen, _seen(place, window))
        bias = None
        if mask is not None:
            mask = _widened(tf, mask, keys)
            if mask.dtype == tf.bool:
                seen = mask if seen is None else tf.logical_and(seen, mask)
            else:
                bias = mask
        limited = scores if bias is None else scores + bias
        limited = limited if seen is None else tf.where(seen, limited, infinity)
        if mask is None and lengths is None:
            return limited, blind
        return limited, _sees_nothing(tf, seen, bias, infinity)

    return call


def _window(site: Site) -> tuple[int, int] | None:
    """How many keys before and after its own place a query sees, -1: all; None: all on both sides."""
    left = int(site.get("left_window_size", -1))
    right = int(site.get("right_window_size", -1))
    if site.get("is_causal", 0):
        right = 0
    return None if left < 0 and right < 0 else (left, right)


def _seen(distance: Any, window: tuple[int, int]) -> Any:
    left, right = window
    seen = distance <= right if right >= 0 else distance >= -left
    return seen & (distance >= -left) if right >= 0 and left >= 0 else seen


def _sees_nothing(tf: Any, seen: Any, bias: Any, infinity: Any) -> Any:
    allowed = seen
    if bias is not None:
        finite = tf.not_equal(bias, infinity)
        allowed = finite if allowed is None else tf.logical_and(allowed, finite)
    return tf.logical_not(tf.reduce_any(allowed, -1, keepdims=True))


def _widened(tf: Any, mask: Any, keys: int) -> Any:
    """A mask that ends early hides the keys beyond its end."""
    missing = keys - mask.shape[-1]
    if missing <= 0:
        return mask
    hidden = tf.constant(False) if mask.dtype == tf.bool else tf.constant(float("-inf"), mask.dtype)
    pads = [[0, 0] for _ in mask.shape[:-1]] + [[0, missing]]
    return tf.pad(mask, pads, constant_values=hidden)


@TABLE.add("RotaryEmbedding", attributes="interleaved num_heads rotary_embedding_dim")
def _rotary_embedding(site: Site) -> Call:
    tf, shape, flat = site.tf, site.shape(), site.rank() == 3
    heads = int(site.get("num_heads") or 0)
    if flat and not heads:
        raise site.refusal("num_heads is needed for three dimensions")
    size = shape[-1] // (heads if flat else 1)
    rotated = int(site.get("rotary_embedding_dim") or 0) or size
    interleaved = bool(site.get("interleaved", 0))
    split = (shape[0], shape[1], heads, size)
    # Angles are by place: heads come after the places in a flat tensor, before them otherwise.
    head_axis = 2 if flat else 1

    def call(x: Any, cosines: Any, sines: Any, places: Any = None) -> Any:
        if places is not None:
            cosines, sines = tf.gather(cosines, places), tf.gather(sines, places)
        cosines, sines = tf.expand_dims(cosines, head_axis), tf.expand_dims(sines, head_axis)
        x = tf.reshape(x, split) if flat else x
        turned, rest = x[..., :rotated], x[..., rotated:]
        first, second = (turned[..., 0::2], turned[..., 1::2]) if interleaved else tf.split(turned, 2, -1)
        real, imaginary = cosines * first - sines * second, sines * first + cosines * second
        if interleaved:
            y = tf.reshape(tf.stack([real, imaginary], -1), turned.shape)
        else:
            y = tf.concat([real, imaginary], -1)
        y = y if rotated == size else tf.concat([y, rest], -1)
        return tf.reshape(y, shape) if flat else y

    return call
