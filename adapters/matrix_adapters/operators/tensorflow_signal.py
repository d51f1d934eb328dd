"""Discrete Fourier transform and window functions."""

from __future__ import annotations

import math
from typing import Any

from matrix_adapters.operators.tensorflow_cast import dtype_word
from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

#: a0 - a1 cos(x) + a2 cos(2 x), as ONNX has them; TensorFlow's Hamming window has 0.54 and 0.46
_WINDOWS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@TABLE.add(*_WINDOWS, attributes="output_datatype periodic")
def _window(site: Site) -> Call:
    tf, weights, name = site.tf, _WINDOWS[site.node.op], site.node.op
    dtype = dtype_word(site, site.get("output_datatype", 1))
    periodic = bool(site.get("periodic", 1))
    (size,) = site.integers(0) or (0,)
    if name == "HannWindow":
        return lambda _: tf.signal.hann_window(size, periodic, tf.as_dtype(dtype))
    step = 2 * math.pi / (size if periodic else size - 1)

    def call(_: Any) -> Any:
        angle = tf.cast(tf.range(size), dtype) * step
        return weights[0] - weights[1] * tf.cos(angle) + weights[2] * tf.cos(2 * angle)

    return call


@TABLE.add("DFT", attributes="axis inverse onesided")
def _dft(site: Site) -> Call:
    """The last dimension holds the real part, or the real and the imaginary one."""
    tf, shape = site.tf, site.shape()
    rank, inverse, onesided = len(shape), bool(site.get("inverse", 0)), bool(site.get("onesided", 0))
    given = site.integers(2) if site.opset >= 20 and site.has(2) else None
    axis = given[0] if given else int(site.get("axis", -2 if site.opset >= 20 else 1))
    axis = site.axis(axis)
    if axis == rank - 1 or (inverse and onesided):
        raise site.refusal("the last axis, or an inverse of half a spectrum")
    length = (site.integers(1) or (shape[axis],))[0]
    order = [n for n in range(rank - 1) if n != axis] + [axis]
    back = [order.index(n) for n in range(rank - 1)]
    transform = tf.signal.ifft if inverse else tf.signal.fft
    fit = [*(slice(None) for _ in order[:-1]), slice(length)]
    missing = [[0, 0] for _ in order]
    missing[-1][1] = max(length - shape[axis], 0)

    def call(x: Any, *_: Any) -> Any:
        parts = tf.unstack(x, axis=-1)
        parts = [tf.pad(tf.transpose(part, order)[tuple(fit)], missing) for part in parts]
        imaginary = parts[1] if len(parts) > 1 else tf.zeros_like(parts[0])
        y = transform(tf.complex(parts[0], imaginary))
        y = y[..., : length // 2 + 1] if onesided else y
        return tf.stack([tf.transpose(part, back) for part in (tf.math.real(y), tf.math.imag(y))], -1)

    return call
