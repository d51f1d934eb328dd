"""Attention and rotary position embedding, of opset 23 on.

The plain cases are `scaled_dot_product_attention`; what it cannot give (a soft cap, the scores
as an output, a softmax of another precision) is spelt out.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator

_RAW, _CAPPED, _BIASED, _SOFT = range(4)  # qk_matmul_output_mode


def _attention(bound: Bound) -> Kernel:
    heads, kv_heads = _heads(bound)
    past = bound.shape(4)[2] if bound.has(4) else 0
    queries = bound.shape(0)[-2]
    keys = bound.shape(1)[-2] + past
    flat = bound.rank() == 3
    width = bound.shape()[-1] // (heads if flat else 1)
    scale = bound.real("scale", 1 / math.sqrt(width)) or 1 / math.sqrt(width)
    if "scale" not in bound.node.attributes:
        scale = 1 / math.sqrt(width)
    allowed = _allowed(bound, queries, keys, past)
    inner = _inner(bound, scale, allowed)
    outputs = bound.outputs

    def split(x: Any, count: int) -> Any:
        return x.unflatten(-1, (count, -1)).transpose(1, 2) if flat else x

    def attention(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        mask, past_k, past_v, valid = (*rest, None, None, None, None)[:4]
        q, k, v = split(q, heads), split(k, kv_heads), split(v, kv_heads)
        if past:
            k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        y, scores = inner(q, k, v, mask, valid)
        if flat:
            y = y.transpose(1, 2).flatten(2)
        return y if outputs == 1 else (y, k, v, scores)[:outputs]

    return attention


def _heads(bound: Bound) -> tuple[int, int]:
    if bound.rank() == 4:
        bound.ignore("q_num_heads", "kv_num_heads")
        return bound.shape(0)[1], bound.shape(1)[1]
    found = bound.integer("q_num_heads"), bound.integer("kv_num_heads")
    if not all(found):
        bound.refuse("inputs of rank 3 need q_num_heads and kv_num_heads")
    return found


def _allowed(bound: Bound, queries: int, keys: int, past: int) -> Kernel:
    """callable(valid or None) -> which keys each query may see, bool that broadcasts; None: all of them.

    The place of query i is i + offset: the length of the past, or, where `nonpad_kv_seqlen`
    says how many keys are real, what of them comes before this block of queries.
    """
    causal = bound.flag("is_causal")
    left, right = bound.integer("left_window_size", -1), bound.integer("right_window_size", -1)
    device = bound.device
    row = torch.arange(queries, device=device)[:, None]
    column = torch.arange(keys, device=device)[None, :]

    def pattern(offset: Any) -> Any:
        seen = None
        ahead = column - (row + offset)
        for wanted, test in ((causal, ahead <= 0), (left >= 0, -ahead <= left), (right >= 0, ahead <= right)):
            if wanted:
                seen = test if seen is None else seen & test
        return seen

    if not bound.has(6):
        fixed = pattern(past)
        return lambda _: fixed

    def padded(valid: Any) -> Any:
        real = column < valid.reshape(-1, 1, 1, 1)
        seen = pattern(valid.reshape(-1, 1, 1, 1) - queries)
        return real if seen is None else real & seen

    return padded


def _inner(bound: Bound, scale: float, allowed: Kernel) -> Kernel:
    """callable(q, k, v, mask, valid) -> (output, scores or None), all of rank 4."""
    cap, mode = bound.real("softcap", 0.0), bound.integer("qk_matmul_output_mode")
    precision = bound.element_type("softmax_precision")
    narrow = bound.dtype() in (torch.float16, torch.bfloat16)
    usual = precision in (None, bound.dtype()) or (narrow and precision == torch.float32)
    grouped = bound.shape(0)[1] != bound.shape(1)[1] if bound.rank() == 4 else _grouped_flat(bound)
    causal = bound.flag("is_causal")
    simple = not bound.has(3) and not bound.has(4) and not bound.has(6)
    windowed = max(bound.integer("left_window_size", -1), bound.integer("right_window_size", -1)) >= 0
    if cap == 0 and usual and not bound.wants(3):
        if simple and not windowed:
            return lambda q, k, v, mask, valid: (
                F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped),
                None,
            )

        def fused(q: Any, k: Any, v: Any, mask: Any, valid: Any) -> Any:
            bias = _combined(mask, allowed(valid), k.shape[2])
            return F.scaled_dot_product_attention(q, k, v, bias, scale=scale, enable_gqa=grouped), None

        return fused

    root = math.sqrt(scale)

    def spelt_out(q: Any, k: Any, v: Any, mask: Any, valid: Any) -> Any:
        bias = _combined(mask, allowed(valid), k.shape[2])
        if grouped:
            times = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        raw = (q * root) @ (k * root).transpose(-1, -2)
        capped = torch.tanh(raw / cap) * cap if cap > 0 else raw
        biased = capped
        if bias is not None:
            closed = bias == -math.inf if bias.dtype != torch.bool else ~bias
            biased = capped.masked_fill(closed, -math.inf) if bias.dtype == torch.bool else capped + bias
        soft = F.softmax(biased, -1, dtype=precision).to(q.dtype)
        if bias is not None:
            soft = soft.masked_fill(closed.all(-1, keepdim=True), 0)
        return soft @ v, (raw, capped, biased, soft)[mode]

    return spelt_out


def _grouped_flat(bound: Bound) -> bool:
    return bound.integer("q_num_heads") != bound.integer("kv_num_heads")


def _combined(mask: Any, seen: Any, keys: int) -> Any:
    """The mask as it was given, cut down to what may be seen; a mask that is too short hides the rest."""
    if mask is None:
        return seen
    closed = False if mask.dtype == torch.bool else -math.inf
    if mask.shape[-1] < keys:
        mask = F.pad(mask, (0, keys - mask.shape[-1]), value=closed)
    if seen is None:
        return mask
    if mask.dtype == torch.bool:
        return mask & seen
    return torch.where(seen, mask, closed)


def _rotary(bound: Bound) -> Kernel:
    """x' = x cos - y sin, y' = x sin + y cos; pairs are halves of a head, or neighbours."""
    interleaved, flat = bound.flag("interleaved"), bound.rank() == 3
    heads = bound.integer("num_heads") if flat else bound.shape()[1]
    bound.ignore("num_heads")
    if not heads:
        bound.refuse("inputs of rank 3 need num_heads")
    width = bound.shape()[-1] // heads if flat else bound.shape()[-1]
    turned = bound.integer("rotary_embedding_dim") or width
    shape, axis = bound.shape(), 2 if flat else 1

    def rotate(x: Any, cos: Any, sin: Any, place: Any = None) -> Any:
        if flat:
            x = x.unflatten(-1, (heads, width))
        if place is not None:
            cos, sin = cos[place], sin[place]
        cos, sin = cos.unsqueeze(axis), sin.unsqueeze(axis)
        part, rest = (x, None) if turned == width else (x[..., :turned], x[..., turned:])
        if interleaved:
            a, b = part[..., 0::2], part[..., 1::2]
            part = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        else:
            a, b = part.chunk(2, -1)
            part = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
        made = part if rest is None else torch.cat((part, rest), -1)
        return made.reshape(shape)

    return rotate


OPERATORS: dict[str, Operator] = {
    "Attention": Operator(build=_attention),
    "RotaryEmbedding": Operator(build=_rotary),
}
