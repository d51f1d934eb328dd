"""One step of a recurrent cell, by the equations of the ONNX specification (RNN-22, GRU-22, LSTM-22)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel

Step = Callable[..., list[Any]]  # (x [batch, input], states) -> new states

#: name -> (how many of alpha, beta it takes, its defaults, function)
_ACTIVATIONS: dict[str, tuple[int, tuple[float, ...], Callable[..., Any]]] = {
    "Relu": (0, (), torch.relu),
    "Tanh": (0, (), torch.tanh),
    "Sigmoid": (0, (), torch.sigmoid),
    "Softsign": (0, (), F.softsign),
    "Softplus": (0, (), F.softplus),
    "LeakyRelu": (1, (0.01,), F.leaky_relu),
    "ThresholdedRelu": (1, (1.0,), lambda x, alpha: F.threshold(x, alpha, 0.0)),
    "Elu": (1, (1.0,), F.elu),
    "Affine": (2, (1.0, 0.0), lambda x, alpha, beta: x * alpha + beta),
    "ScaledTanh": (2, (1.0, 1.0), lambda x, alpha, beta: torch.tanh(x * beta) * alpha),
    "HardSigmoid": (2, (0.2, 0.5), lambda x, alpha, beta: (x * alpha + beta).clamp(0, 1)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One direction's settings; `clip` bounds what goes into an activation."""

    hidden: int
    activations: tuple[Kernel, ...]
    linear_before_reset: bool
    input_forget: bool

    @classmethod
    def read(cls, bound: Bound, kind: str, hidden: int, direction: int, default: list[str]) -> Cell:
        names = [str(a) for a in bound.attribute("activations") or default * bound.shape(1)[0]]
        alphas, betas = (
            list(bound.reals("activation_alpha") or ()),
            list(bound.reals("activation_beta") or ()),
        )
        clip = bound.attribute("clip")
        made = []
        for name in names:
            found = next((n for n in _ACTIVATIONS if n.lower() == name.lower()), None)
            if found is None:
                bound.refuse(f"activation {name}")
            takes, defaults, function = _ACTIVATIONS[found]
            numbers = [
                source.pop(0) if source else defaults[i] for i, source in enumerate((alphas, betas)[:takes])
            ]
            made.append(_clipped(function, numbers, None if clip is None else bound.real("clip", 0.0)))
        each = len(default)
        return cls(
            hidden=hidden,
            activations=tuple(made[direction * each : (direction + 1) * each]),
            linear_before_reset=kind == "GRU" and bound.flag("linear_before_reset"),
            input_forget=kind == "LSTM" and bound.flag("input_forget"),
        )


def _clipped(function: Callable[..., Any], numbers: list[float], clip: float | None) -> Kernel:
    if clip is None:
        return lambda x: function(x, *numbers)
    return lambda x: function(x.clamp(-clip, clip), *numbers)


def _rnn(cell: Cell, w: Any, r: Any, b: Any, _: Any) -> Step:
    (f,) = cell.activations
    wb, rb = (None, None) if b is None else b.chunk(2)
    return lambda x, h: [f(F.linear(x, w, wb) + F.linear(h, r, rb))]


def _gru(cell: Cell, w: Any, r: Any, b: Any, _: Any) -> Step:
    f, g = cell.activations
    wb, rb = (None, None) if b is None else b.chunk(2)
    both = 2 * cell.hidden

    def step(x: Any, h: Any) -> list[Any]:
        from_x = F.linear(x, w, wb)
        from_h = F.linear(h, r[:both], None if rb is None else rb[:both])
        z, reset = f(from_x[:, :both] + from_h).chunk(2, 1)
        bias = None if rb is None else rb[both:]
        if cell.linear_before_reset:
            candidate = g(from_x[:, both:] + reset * F.linear(h, r[both:], bias))
        else:
            candidate = g(from_x[:, both:] + F.linear(reset * h, r[both:], bias))
        return [(1 - z) * candidate + z * h]

    return step


def _lstm(cell: Cell, w: Any, r: Any, b: Any, p: Any) -> Step:
    f, g, out = cell.activations
    wb, rb = (None, None) if b is None else b.chunk(2)
    peep_i, peep_o, peep_f = (0, 0, 0) if p is None else p.chunk(3)

    def step(x: Any, h: Any, c: Any) -> list[Any]:
        i, o, forget, candidate = (F.linear(x, w, wb) + F.linear(h, r, rb)).chunk(4, 1)
        i = f(i + peep_i * c)
        forget = 1 - i if cell.input_forget else f(forget + peep_f * c)
        c = forget * c + i * g(candidate)
        return [f(o + peep_o * c) * out(c), c]

    return step


CELLS: dict[str, Callable[[Cell, Any, Any, Any, Any], Step]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
