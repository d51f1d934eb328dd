"""LSTM, GRU and RNN.

torch's own fused functions where they compute the same; peepholes, other activations, clipping,
uneven lengths and the GRU without `linear_before_reset` step by step (`torch_cells`). ONNX and
torch order the gates differently: constant weights are reordered before the first call, fed
ones at every call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator
from matrix_adapters.operators.torch_cells import CELLS, Cell

#: place of each of torch's gates among ONNX's
_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_DIRECTIONS = ("forward", "reverse", "bidirectional")

#: (tensors of the node) -> (y [time, batch, directions, hidden], states [directions, batch, hidden])
Core = Callable[..., tuple[Any, list[Any]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Setting:
    kind: str
    hidden: int
    batch: int
    directions: int
    reverse: bool
    batch_first: bool
    lengths: tuple[int, ...] | None  # None: all of full length


def _recurrent(kind: str) -> Callable[[Bound], Kernel]:
    def build(bound: Bound) -> Kernel:
        setting = _read(bound, kind)
        core = _fused(bound, setting) or _stepped(bound, setting)
        swap, states = setting.batch_first, 2 if kind == "LSTM" else 1
        outputs = bound.outputs

        def call(x: Any, w: Any, r: Any, b: Any = None, *rest: Any) -> Any:
            given = [*rest, None, None, None][:3]
            if swap:
                x = x.transpose(0, 1)
                given[:states] = [
                    None if s is None else s.transpose(0, 1).contiguous() for s in given[:states]
                ]
            y, last = core(x, w, r, b, *given)
            made = (
                [y.transpose(0, 1), *(s.transpose(0, 1) for s in last)]
                if swap
                else [y.transpose(1, 2), *last]
            )
            return made[0] if outputs == 1 else tuple(made[:outputs])

        return call

    return build


def _read(bound: Bound, kind: str) -> _Setting:
    direction = bound.text("direction", "forward", _DIRECTIONS)
    batch_first = bound.flag("layout")
    steps, batch = bound.shape()[:2][:: -1 if batch_first else 1]
    hidden = bound.shape(2)[-1]
    if bound.integer("hidden_size", hidden) != hidden:
        bound.refuse("a hidden_size that is not the weights'")
    lengths = bound.ints(4)
    if lengths is not None and set(lengths) == {steps}:
        lengths = None
    return _Setting(
        kind=kind,
        hidden=hidden,
        batch=batch,
        directions=bound.shape(1)[0],
        reverse=direction == "reverse",
        batch_first=batch_first,
        lengths=None if lengths is None else tuple(lengths),
    )


def _fused(bound: Bound, setting: _Setting) -> Core | None:
    """torch.lstm and its like, unless something is asked that they lack."""
    kind = setting.kind
    default = _DEFAULTS[kind] * setting.directions
    activations = [str(a) for a in bound.attribute("activations") or default]
    function = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN": torch.rnn_tanh}[kind]
    if kind == "RNN" and set(activations) == {"Relu"}:
        function, default = torch.rnn_relu, activations
    before_reset = kind != "GRU" or bound.flag("linear_before_reset")
    plain = activations == default and before_reset and setting.lengths is None and not bound.has(7)
    if not plain or bound.attribute("clip") is not None or bound.flag("input_forget"):
        return None
    bound.ignore("activation_alpha", "activation_beta")
    fixed = [bound.constant(i) for i in (1, 2, 3)]
    known = all(f is not None or not bound.has(i) for i, f in zip((1, 2, 3), fixed, strict=True))
    ready = _parameters(setting, *fixed) if known else None
    both, reverse = setting.directions == 2, setting.reverse
    zeros = torch.zeros(
        setting.directions, setting.batch, setting.hidden, dtype=bound.dtype(), device=bound.device
    )

    def core(x: Any, *given: Any) -> tuple[Any, list[Any]]:
        w, r, b, h, c, _ = given
        weights = ready if ready is not None else _parameters(setting, w, r, b)
        h = zeros if h is None else h
        state = [h, zeros if c is None else c] if kind == "LSTM" else h
        x = x.flip(0) if reverse else x
        y, *last = function(x, state, weights, b is not None, 1, 0.0, False, both, False)
        y = y.flip(0) if reverse else y
        return y.unflatten(2, (setting.directions, setting.hidden)), last

    return core


def _parameters(setting: _Setting, w: Any, r: Any, b: Any) -> list[Any]:
    """W [directions, gates x hidden, input], R, B [directions, 2 x gates x hidden] as torch's flat list."""
    order = _ORDER[setting.kind]
    gates = len(order)
    made = []
    for direction in range(setting.directions):
        made += [_reordered(t[direction], order) for t in (w, r)]
        if b is not None:
            half = gates * setting.hidden
            made += [_reordered(b[direction, :half], order), _reordered(b[direction, half:], order)]
    return made


def _reordered(weight: Any, order: Sequence[int]) -> Any:
    if len(order) == 1:
        return weight
    parts = weight.chunk(len(order))
    return torch.cat([parts[i] for i in order])


def _stepped(bound: Bound, setting: _Setting) -> Core:
    """Every step in torch's elementary functions."""
    cells = [
        Cell.read(bound, setting.kind, setting.hidden, direction, _DEFAULTS[setting.kind])
        for direction in range(setting.directions)
    ]
    bound.ignore("activation_alpha", "activation_beta", "linear_before_reset", "input_forget")
    step_of = CELLS[setting.kind]
    zeros = torch.zeros(setting.batch, setting.hidden, dtype=bound.dtype(), device=bound.device)
    steps = bound.shape()[1 if setting.batch_first else 0]
    alive = _alive(bound, setting, steps)

    def core(x: Any, *given: Any) -> tuple[Any, list[Any]]:
        w, r, b, h, c, p = given
        outputs, last = [], []
        for d in range(setting.directions):
            step = step_of(cells[d], w[d], r[d], None if b is None else b[d], None if p is None else p[d])
            state = [zeros if s is None else s[d] for s in (h, c)][: 2 if setting.kind == "LSTM" else 1]
            made: list[Any] = [None] * steps
            backwards = setting.reverse or d == 1
            for t in reversed(range(steps)) if backwards else range(steps):
                new = step(x[t], *state)
                if alive is not None:
                    new = [torch.where(alive[t], n, s) for n, s in zip(new, state, strict=True)]
                state = new
                made[t] = state[0] if alive is None else torch.where(alive[t], state[0], zeros)
            outputs.append(torch.stack(made))
            last.append(state)
        return torch.stack(outputs, 2), [torch.stack(s) for s in zip(*last, strict=True)]

    return core


def _alive(bound: Bound, setting: _Setting, steps: int) -> Any:
    """bool[time, batch, 1]: which entries of the batch have not ended."""
    if setting.lengths is None:
        return None
    lengths = torch.tensor(setting.lengths, device=bound.device)
    return (torch.arange(steps, device=bound.device)[:, None] < lengths[None, :])[..., None]


OPERATORS: dict[str, Operator] = {
    kind: Operator(build=_recurrent(kind), static=(4,)) for kind in ("GRU", "LSTM", "RNN")
}
