"""RNN, GRU and LSTM with everything that their definitions offer. Formulas: ONNX's Operators.md.

The evaluator (onnx 1.23) ignores `sequence_lens`, `activations`, `clip` and `input_forget`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from matrix_adapters.operators.oracle_op import Array, Definition, like, wide

Function = Callable[[Array], Array]
State = tuple[Array, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """One direction's weights, float64, and what shapes a step."""

    w: Array  # [gates * H, I]
    r: Array  # [gates * H, H]
    wb: Array  # [gates * H]
    rb: Array  # [gates * H]
    peepholes: Array  # [3 * H], LSTM only
    functions: Sequence[Function]
    clip: float | None
    flag: bool  # linear_before_reset of a GRU, input_forget of an LSTM


class _Recurrent(Definition):
    gates = 1
    states = 1
    default: tuple[str, ...] = ("Tanh",)

    def _recur(
        self,
        x: Array,
        weights: tuple[Array, Array, Array | None],
        lengths: Array | None,
        initial: Sequence[Array | None],
        peepholes: Array | None,
        *,
        flag: int,
        direction: str,
        layout: int,
        clip: float | None,
        activations: Sequence[Any] | None,
        activation_alpha: Sequence[float] | None,
        activation_beta: Sequence[float] | None,
    ) -> tuple[Array, ...]:
        """Y [T, D, N, H] and the last states [D, N, H]; batch first where `layout` is 1."""
        w, r, b = weights
        directions, hidden = w.shape[0], r.shape[-1]
        steps = wide(x) if not layout else wide(x).swapaxes(0, 1)
        length, batch = steps.shape[:2]
        many = np.full(batch, length) if lengths is None else lengths.astype(np.int64)
        chosen = list(activations or self.default * directions)
        functions = _functions(chosen, activation_alpha or (), activation_beta or ())
        each = len(self.default)
        outputs, finals = [], []
        for d in range(directions):
            bias = np.zeros(2 * self.gates * hidden) if b is None else wide(b[d])
            wb, rb = np.split(bias, 2)
            parameters = Parameters(
                wide(w[d]),
                wide(r[d]),
                wb,
                rb,
                np.zeros(3 * hidden) if peepholes is None else wide(peepholes[d]),
                functions[d * each : (d + 1) * each],
                clip,
                bool(flag),
            )
            start = tuple(_initial(value, d, layout, (batch, hidden)) for value in initial)
            backward = direction == "reverse" or d == 1
            y, final = self._direction(steps, many, start, parameters, backward=backward)
            outputs.append(y)
            finals.append(final)
        y = np.stack(outputs, axis=1)
        last = [np.stack([final[i] for final in finals]) for i in range(self.states)]
        if layout:
            y, last = y.transpose(2, 0, 1, 3), [value.swapaxes(0, 1) for value in last]
        return tuple(like(value, x) for value in (y, *last))[: max(1, len(self.onnx_node.output))]

    def _direction(
        self, x: Array, lengths: Array, state: State, p: Parameters, *, backward: bool
    ) -> tuple[Array, State]:
        """A sample stands still after its own length: its later outputs are 0, its last state stays."""
        y = np.zeros((*x.shape[:2], p.r.shape[-1]))
        order: Iterator[int] = iter(range(len(x))[::-1] if backward else range(len(x)))
        for t in order:
            live = (t < lengths)[:, None]
            new = self.step(x[t], state, p)
            state = tuple(np.where(live, a, b) for a, b in zip(new, state, strict=True))
            y[t] = np.where(live, state[0], 0.0)
        return y, state

    def step(self, x: Array, state: State, p: Parameters) -> State:
        raise NotImplementedError


class RNN(_Recurrent):
    """h = f(x W + h R + b)."""

    def _run(  # noqa: PLR0917 - the operator's inputs
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        initial_h: Array | None = None,
        *,
        hidden_size: int | None = None,
        layout: int = 0,
        **options: Any,
    ) -> tuple[Array, ...]:
        del hidden_size  # that of R
        return self._recur(x, (w, r, b), lengths, [initial_h], None, flag=0, layout=layout, **options)

    def step(self, x: Array, state: State, p: Parameters) -> State:
        (f,) = p.functions
        return (f(_clipped(x @ p.w.T + state[0] @ p.r.T + p.wb + p.rb, p.clip)),)


class GRU(_Recurrent):
    """z, r = f(...); n = g(x W + r * (h R) ...); h = (1 - z) * n + z * h."""

    gates = 3
    default = ("Sigmoid", "Tanh")

    def _run(  # noqa: PLR0917 - the operator's inputs
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        initial_h: Array | None = None,
        *,
        hidden_size: int | None = None,
        layout: int = 0,
        linear_before_reset: int = 0,
        **options: Any,
    ) -> tuple[Array, ...]:
        del hidden_size
        flag = linear_before_reset
        return self._recur(x, (w, r, b), lengths, [initial_h], None, flag=flag, layout=layout, **options)

    def step(self, x: Array, state: State, p: Parameters) -> State:
        f, g = p.functions
        (h,) = state
        wz, wr, wn = np.split(x @ p.w.T + p.wb, 3, axis=-1)
        rz, rr, rn = np.split(p.r, 3)
        bz, br, bn = np.split(p.rb, 3)
        update = f(_clipped(wz + h @ rz.T + bz, p.clip))
        reset = f(_clipped(wr + h @ rr.T + br, p.clip))
        inner = reset * (h @ rn.T + bn) if p.flag else (reset * h) @ rn.T + bn
        new = g(_clipped(wn + inner, p.clip))
        return ((1 - update) * new + update * h,)


class LSTM(_Recurrent):
    """i, o, f, c = gates; C = f * C + i * c; h = o * tanh(C), with peepholes from C."""

    gates = 4
    states = 2
    default = ("Sigmoid", "Tanh", "Tanh")

    def _run(  # noqa: PLR0917 - the operator's inputs
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        peepholes: Array | None = None,
        *,
        hidden_size: int | None = None,
        layout: int = 0,
        input_forget: int = 0,
        **options: Any,
    ) -> tuple[Array, ...]:
        del hidden_size
        start = [initial_h, initial_c]
        return self._recur(
            x, (w, r, b), lengths, start, peepholes, flag=input_forget, layout=layout, **options
        )

    def step(self, x: Array, state: State, p: Parameters) -> State:
        f, g, h = p.functions
        hidden, cell = state
        gi, go, gf, gc = np.split(x @ p.w.T + hidden @ p.r.T + p.wb + p.rb, 4, axis=-1)
        pi, po, pf = np.split(p.peepholes, 3)
        i = f(_clipped(gi + pi * cell, p.clip))
        forget = 1 - i if p.flag else f(_clipped(gf + pf * cell, p.clip))
        new = forget * cell + i * g(_clipped(gc, p.clip))
        o = f(_clipped(go + po * new, p.clip))
        return o * h(_clipped(new, p.clip) if p.clip else new), new


def _initial(value: Array | None, d: int, layout: int, shape: tuple[int, int]) -> Array:
    if value is None:
        return np.zeros(shape)
    return wide(value[:, d] if layout else value[d])


def _clipped(x: Array, limit: float | None) -> Array:
    return np.clip(x, -limit, limit) if limit else x


#: activation -> (whether it takes alpha, beta, as (alpha, beta) -> function); defaults are its operator's
_ACTIVATIONS: dict[str, tuple[float | None, float | None, Callable[[float, float], Function]]] = {
    "relu": (None, None, lambda a, b: lambda x: np.maximum(x, 0)),
    "tanh": (None, None, lambda a, b: np.tanh),
    "sigmoid": (None, None, lambda a, b: lambda x: np.exp(-np.logaddexp(0, -x))),
    "affine": (1.0, 0.0, lambda a, b: lambda x: a * x + b),
    "leakyrelu": (0.01, None, lambda a, b: lambda x: np.where(x < 0, a * x, x)),
    "thresholdedrelu": (1.0, None, lambda a, b: lambda x: np.where(x > a, x, 0)),
    "scaledtanh": (1.0, 1.0, lambda a, b: lambda x: a * np.tanh(b * x)),
    "hardsigmoid": (0.2, 0.5, lambda a, b: lambda x: np.clip(a * x + b, 0, 1)),
    "elu": (1.0, None, lambda a, b: lambda x: np.where(x < 0, a * np.expm1(x), x)),
    "softsign": (None, None, lambda a, b: lambda x: x / (1 + np.abs(x))),
    "softplus": (None, None, lambda a, b: lambda x: np.logaddexp(0, x)),
}


def _functions(names: Sequence[Any], alphas: Sequence[float], betas: Sequence[float]) -> list[Function]:
    """Parameters are consumed in order by the functions that have them."""
    left, right = iter(alphas), iter(betas)
    made = []
    for raw in names:
        name = (raw.decode() if isinstance(raw, bytes) else str(raw)).lower()
        if name not in _ACTIVATIONS:
            raise ValueError(f"no activation {raw!r}: known are {', '.join(_ACTIVATIONS)}")
        alpha, beta, function = _ACTIVATIONS[name]
        a = 0.0 if alpha is None else float(next(left, alpha))
        b = 0.0 if beta is None else float(next(right, beta))
        made.append(function(a, b))
    return made


OPERATORS = (RNN, GRU, LSTM)
