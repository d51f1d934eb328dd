"""Attention, rotary embedding, recurrent layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from torch_cases.table import (
    FLOATS,
    E,
    Entry,
    bools,
    f,
    ints,
    values,
)


def _attention() -> Iterator[Entry]:
    q, k, v = f(2, 4, 3, 8), f(2, 4, 5, 8), f(2, 4, 5, 6)
    for opset in (23, 24):
        yield E("Attention", q, k, v, opset=opset, dtypes=FLOATS)
        yield E("Attention", q, k, v, opset=opset, scale=0.3)
        yield E("Attention", q, k, v, opset=opset, is_causal=1)
        yield E("Attention", q, k, v, f(3, 5), opset=opset)
        yield E("Attention", q, k, v, bools(2, 1, 3, 5), opset=opset)
        yield E("Attention", q, k, v, bools(4, 3, 5), opset=opset, is_causal=1)
        yield E("Attention", q, k, v, f(2, 4, 3, 5), opset=opset, is_causal=1)
        yield E("Attention", q, f(2, 2, 5, 8), f(2, 2, 5, 8), opset=opset)
        yield E("Attention", q, f(2, 1, 5, 8), f(2, 1, 5, 8), f(3, 5), opset=opset, softcap=2.0)
        yield E(
            "Attention", f(2, 3, 32), f(2, 5, 16), f(2, 5, 16), opset=opset, q_num_heads=4, kv_num_heads=2
        )
        yield E(
            "Attention", q, k, f(2, 4, 5, 8), f(3, 9), f(2, 4, 4, 8), f(2, 4, 4, 8), opset=opset, outputs=3
        )
        yield E(
            "Attention",
            q,
            k,
            f(2, 4, 5, 8),
            None,
            f(2, 4, 4, 8),
            f(2, 4, 4, 8),
            opset=opset,
            outputs=3,
            is_causal=1,
        )
        yield E(
            "Attention",
            q,
            k,
            v,
            f(3, 5),
            opset=opset,
            outputs=(True, False, False, True),
            qk_matmul_output_mode=3,
        )
        yield E("Attention", q, k, v, f(3, 5), opset=opset, outputs=(True, False, False, True))
        yield E("Attention", q, k, v, opset=opset, softcap=1.5)
        yield E("Attention", q, k, v, opset=opset, softmax_precision=1, dtypes=("float16", "float32"))
    yield E("Attention", q, k, v, None, None, None, values([5, 2]), opset=24)
    yield E("Attention", q, k, v, None, None, None, values([5, 3]), opset=24, is_causal=1)
    yield E("Attention", q, k, v, None, None, None, values([5, 2]), opset=24, is_causal=1)
    yield E(
        "Attention",
        q,
        k,
        v,
        values([[False] * 5, [True] * 5, [True, False, True, False, True]], "bool"),
        opset=24,
    )
    yield E("Attention", q, k, v, opset=25, left_window_size=1, right_window_size=1)
    yield E("Attention", q, k, v, opset=25, left_window_size=1, is_causal=1)
    for interleaved in (0, 1):
        yield E(
            "RotaryEmbedding",
            f(2, 3, 4, 8),
            f(9, 4),
            f(9, 4),
            ints(0, 8, 2, 4),
            opset=23,
            interleaved=interleaved,
            dtypes=FLOATS[1:],
        )
        yield E(
            "RotaryEmbedding",
            f(2, 4, 24),
            f(2, 4, 4),
            f(2, 4, 4),
            opset=23,
            interleaved=interleaved,
            num_heads=3,
            dtypes=("float32",),
        )
        yield E(
            "RotaryEmbedding",
            f(2, 3, 4, 8),
            f(9, 2),
            f(9, 2),
            ints(0, 8, 2, 4),
            opset=23,
            interleaved=interleaved,
            rotary_embedding_dim=4,
            dtypes=("float32",),
        )


def _recurrent() -> Iterator[Entry]:
    steps, batch, size, hidden = 5, 2, 3, 4
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        outputs = 3 if op == "LSTM" else 2
        for direction, d in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            x = f(steps, batch, size)
            w, r, b = f(d, gates * hidden, size), f(d, gates * hidden, hidden), f(d, 2 * gates * hidden)
            h = f(d, batch, hidden)
            states = [h, h] if op == "LSTM" else [h]
            more: list[dict[str, Any]] = [{"linear_before_reset": 1}] if op == "GRU" else [{}]
            more += [{}] if op == "GRU" else []
            for extra in more:
                yield E(op, x, w, r, hidden_size=hidden, direction=direction, outputs=outputs, **extra)
                yield E(
                    op,
                    x,
                    w,
                    r,
                    b,
                    None,
                    *states,
                    hidden_size=hidden,
                    direction=direction,
                    outputs=outputs,
                    **extra,
                )
                yield E(
                    op,
                    x,
                    w,
                    r,
                    b,
                    values([3, 5], "int32"),
                    *states,
                    hidden_size=hidden,
                    direction=direction,
                    outputs=outputs,
                    **extra,
                )
            yield E(
                op,
                x,
                *(dataclasses.replace(t, constant=True) for t in (w, r, b)),
                hidden_size=hidden,
                direction=direction,
                outputs=outputs,
                dtypes=FLOATS,
            )
            first = f(batch, steps, size)
            swapped = [f(batch, d, hidden) for _ in states]
            yield E(
                op,
                first,
                w,
                r,
                b,
                None,
                *swapped,
                hidden_size=hidden,
                direction=direction,
                outputs=outputs,
                layout=1,
            )
            yield E(
                op,
                x,
                w,
                r,
                b,
                values([5, 5], "int32"),
                hidden_size=hidden,
                direction=direction,
                outputs=outputs,
            )
    yield E(
        "LSTM",
        f(5, 2, 3),
        f(1, 16, 3),
        f(1, 16, 4),
        f(1, 32),
        None,
        f(1, 2, 4),
        f(1, 2, 4),
        f(1, 12),
        hidden_size=4,
        outputs=3,
    )
    yield E(
        "LSTM", f(5, 2, 3), f(1, 16, 3), f(1, 16, 4), f(1, 32), hidden_size=4, outputs=(False, True), clip=0.5
    )
    yield E("LSTM", f(5, 2, 3), f(1, 16, 3), f(1, 16, 4), hidden_size=4, input_forget=1)
    yield E("RNN", f(5, 2, 3), f(1, 4, 3), f(1, 4, 4), hidden_size=4, activations=["Relu"])
    yield E(
        "RNN",
        f(5, 2, 3),
        f(1, 4, 3),
        f(1, 4, 4),
        hidden_size=4,
        activations=["LeakyRelu"],
        activation_alpha=[0.3],
    )
    yield E(
        "GRU", f(5, 2, 3), f(1, 12, 3), f(1, 12, 4), hidden_size=4, activations=["HardSigmoid", "Softsign"]
    )


FAMILIES = (
    _attention,
    _recurrent,
)
