"""LSTM, GRU and RNN: one product for all steps, then a scan over them."""

from __future__ import annotations

import dataclasses
from typing import Any

from matrix_adapters.operators.tensorflow_site import Call, Site, Table, single

TABLE = Table()

_COMMON = "activation_alpha activation_beta activations clip direction hidden_size layout"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """One direction: `w` [gates * hidden, inputs], `r` [gates * hidden, hidden], `b` [2 * gates * hidden]."""

    w: Any
    r: Any
    b: Any
    peepholes: Any = None


@TABLE.add("LSTM", attributes=f"{_COMMON} input_forget")
def _lstm(site: Site) -> Call:
    """Gates in the order input, output, forget, cell; peepholes input, output, forget."""
    tf, clip, coupled = site.tf, _clip(site), bool(site.get("input_forget", 0))
    functions = _activations(site, ("Sigmoid", "Tanh", "Tanh"))

    def prepare(each: Weights, x: Any, direction: int) -> tuple[Any, Call]:
        gate, cell, out = functions[direction]
        projected = _projected(tf, x, each)
        look = None if each.peepholes is None else tf.split(each.peepholes, 3)

        def step(state: tuple[Any, Any], given: Any) -> tuple[Any, Any]:
            h, c = state
            i, o, f, g = tf.split(given + tf.linalg.matmul(h, each.r, transpose_b=True), 4, -1)
            if look is not None:
                i, f = i + look[0] * c, f + look[2] * c
            i, g = gate(clip(i)), cell(clip(g))
            f = 1 - i if coupled else gate(clip(f))
            c = f * c + i * g
            o = gate(clip(o if look is None else o + look[1] * c))
            return o * out(c), c

        return projected, step

    return _layer(site, prepare, states=2)


@TABLE.add("GRU", attributes=f"{_COMMON} linear_before_reset")
def _gru(site: Site) -> Call:
    """Gates in the order update, reset, hidden."""
    tf, clip, linear = site.tf, _clip(site), bool(site.get("linear_before_reset", 0))
    functions = _activations(site, ("Sigmoid", "Tanh"))

    def prepare(each: Weights, x: Any, direction: int) -> tuple[Any, Call]:
        gate, hidden = functions[direction]
        size = each.r.shape[-1]
        gates_r, hidden_r = each.r[: 2 * size], each.r[2 * size :]
        projected = tf.linalg.matmul(x, each.w, transpose_b=True)
        bias: Any = 0
        if each.b is not None:
            wb, rb = tf.split(each.b, 2)
            bias = rb[2 * size :]
            # Inside the reset product the recurrent bias of the hidden gate stands apart.
            outer = tf.concat([rb[: 2 * size], tf.zeros_like(bias) if linear else bias], 0)
            projected = projected + (wb + outer)

        def step(state: tuple[Any], given: Any) -> tuple[Any]:
            (h,) = state
            fed, fed_hidden = given[..., : 2 * size], given[..., 2 * size :]
            z, r = tf.split(gate(clip(fed + tf.linalg.matmul(h, gates_r, transpose_b=True))), 2, -1)
            if linear:
                recurrent = r * (tf.linalg.matmul(h, hidden_r, transpose_b=True) + bias)
            else:
                recurrent = tf.linalg.matmul(r * h, hidden_r, transpose_b=True)
            new = hidden(clip(fed_hidden + recurrent))
            return ((1 - z) * new + z * h,)

        return projected, step

    return _layer(site, prepare, states=1)


@TABLE.add("RNN", attributes=_COMMON)
def _rnn(site: Site) -> Call:
    tf, clip = site.tf, _clip(site)
    functions = _activations(site, ("Tanh",))

    def prepare(each: Weights, x: Any, direction: int) -> tuple[Any, Call]:
        (function,) = functions[direction]
        projected = _projected(tf, x, each)

        def step(state: tuple[Any], given: Any) -> tuple[Any]:
            return (function(clip(given + tf.linalg.matmul(state[0], each.r, transpose_b=True))),)

        return projected, step

    return _layer(site, prepare, states=1)


def _layer(site: Site, prepare: Call, *, states: int) -> Call:
    """Directions, batch first or time first, initial states, and sequences of unequal length.

    Inputs X, W, R, B, sequence_lens, initial_h, and for the LSTM initial_c and P. Outputs Y, Y_h
    (and Y_c): a step beyond a sequence's end gives zeros, and leaves the state as it is.
    """
    tf, direction = site.tf, site.get("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise site.refusal(f"no direction {direction!r}")
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    batch_first, hidden = bool(site.get("layout", 0)), site.shape(2)[-1]
    shape, dtype = site.shape(), site.dtype()
    states_wanted = len(site.node.outputs) > 1
    batch = shape[0] if batch_first else shape[1]

    def call(x: Any, w: Any, r: Any, *rest: Any) -> Any:
        b, lengths, *initial = (*rest, None, None, None, None, None)[: 2 + states]
        peepholes = rest[4] if states == 2 and len(rest) > 4 else None
        x = tf.transpose(x, (1, 0, 2)) if batch_first else x
        zeros = tf.zeros((batch, hidden), dtype)
        ys, ends = [], []
        for n, reverse in enumerate(backwards):
            turn = _turned(tf, lengths, reverse)
            each = Weights(w=w[n], r=r[n], b=_of(b, n), peepholes=_of(peepholes, n))
            projected, step = prepare(each, turn(x), n)
            start = tuple(zeros if value is None else _of(value, n, batch_first) for value in initial)
            y, end = _scanned(tf, step, projected, start, lengths)
            ys.append(turn(y))
            ends.append(end)
        y = tf.stack(ys, 1)
        y = tf.transpose(y, (2, 0, 1, 3)) if batch_first else y
        last = [tf.stack(each, 1 if batch_first else 0) for each in zip(*ends, strict=True)]
        return (y, *last) if states_wanted else y

    return call


def _scanned(
    tf: Any, step: Call, projected: Any, start: tuple[Any, ...], lengths: Any
) -> tuple[Any, tuple[Any, ...]]:
    """The first state of every step, and all states after the last one."""
    if lengths is None:
        states = tf.scan(step, projected, start)
        return states[0], tuple(each[-1] for each in states)
    limits, length = tf.cast(lengths, "int32")[:, tf.newaxis], projected.shape[0]

    def within(state: tuple[Any, ...], given: tuple[Any, Any]) -> tuple[Any, ...]:
        new = step(state, given[0])
        return tuple(tf.where(given[1] < limits, n, old) for n, old in zip(new, state, strict=True))

    states = tf.scan(within, (projected, tf.range(length)), start)
    inside = (tf.range(length)[:, tf.newaxis] < tf.cast(lengths, "int32"))[..., tf.newaxis]
    y = tf.where(inside, states[0], tf.zeros_like(states[0]))
    return y, tuple(each[-1] for each in states)


def _projected(tf: Any, x: Any, each: Weights) -> Any:
    """What the inputs of all steps add to the gates, both biases too."""
    y = tf.linalg.matmul(x, each.w, transpose_b=True)
    return y if each.b is None else y + tf.add(*tf.split(each.b, 2))


def _turned(tf: Any, lengths: Any, reverse: bool) -> Call:
    if not reverse:
        return lambda x: x
    if lengths is None:
        return lambda x: tf.reverse(x, (0,))
    return lambda x: tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)


def _of(tensor: Any, n: int, batch_first: bool = False) -> Any:
    if tensor is None:
        return None
    return tensor[:, n] if batch_first else tensor[n]


def _clip(site: Site) -> Call:
    if "clip" not in site.node.attributes:
        return lambda x: x
    tf, limit = site.tf, site.real("clip", 0)
    return lambda x: tf.clip_by_value(x, -limit, limit)


def _activations(site: Site, defaults: tuple[str, ...]) -> list[tuple[Call, ...]]:
    """The functions of each direction. Alphas and betas are handed out in order to those that take them."""
    directions = 2 if site.get("direction") == "bidirectional" else 1
    names = list(site.get("activations") or defaults * directions)
    alphas = iter([single(n) for n in site.get("activation_alpha") or ()])
    betas = iter([single(n) for n in site.get("activation_beta") or ()])
    found = [_activation(site, str(name), alphas, betas) for name in names]
    count = len(defaults)
    return [tuple(found[n * count : (n + 1) * count]) for n in range(directions)]


def _activation(site: Site, name: str, alphas: Any, betas: Any) -> Call:
    """Names in any case, as the standard allows."""
    tf, name = site.tf, name.lower()
    plain = {
        "sigmoid": tf.sigmoid,
        "tanh": tf.tanh,
        "relu": tf.nn.relu,
        "softsign": tf.nn.softsign,
        "softplus": tf.nn.softplus,
    }
    if name in plain:
        function: Call = plain[name]
        return function
    if name == "leakyrelu":
        alpha = next(alphas, 0.01)
        return lambda x: tf.nn.leaky_relu(x, alpha)
    if name == "hardsigmoid":
        alpha, beta = next(alphas, 0.2), next(betas, 0.5)
        return lambda x: tf.clip_by_value(alpha * x + beta, 0.0, 1.0)
    if name == "affine":
        alpha, beta = next(alphas, 1.0), next(betas, 0.0)
        return lambda x: alpha * x + beta
    raise site.refusal(f"no activation {name!r}")
