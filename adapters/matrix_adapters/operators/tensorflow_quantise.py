"""Whole numbers for real ones, and back: scale, zero point, saturation."""

from __future__ import annotations

from typing import Any

from matrix_adapters.operators.tensorflow_cast import dtype_word
from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

_RANGES = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
}


def quantiser(tf: Any, dtype: str) -> Call:
    """(x already divided by the scale, zero point or None) -> rounded half to even, saturated."""
    low, high = _RANGES[dtype]

    def call(scaled: Any, zero: Any = None) -> Any:
        rounded = tf.round(scaled)
        if zero is not None:
            rounded += tf.cast(zero, rounded.dtype)
        return tf.cast(tf.clip_by_value(rounded, low, high), dtype)

    return call


@TABLE.add("QuantizeLinear", attributes="axis block_size output_dtype precision saturate")
def _quantize_linear(site: Site) -> Call:
    tf = site.tf
    dtype = site.dtype(2) if site.has(2) else _output_dtype(site)
    if dtype not in _RANGES:
        raise site.refusal(f"no mapping to the type {dtype}")
    if site.dtype() not in ("float32", "float64", "float16", "bfloat16", "int32"):
        raise site.refusal(f"no mapping from the type {site.dtype()}")
    # 16 bits hold neither every zero point nor every rounded number: float32 holds them all.
    working = dtype_word(site, site.get("precision")) if site.get("precision") else site.dtype(1)
    wide = working if working in ("float32", "float64") else "float32"
    spread, quantise = _spread(site, 1), quantiser(tf, dtype)

    def call(x: Any, scale: Any, zero: Any = None) -> Any:
        scaled = tf.cast(tf.cast(x, working) / tf.cast(spread(scale), working), wide)
        return quantise(scaled, None if zero is None else spread(zero))

    return call


@TABLE.add("DequantizeLinear", attributes="axis block_size output_dtype")
def _dequantize_linear(site: Site) -> Call:
    tf = site.tf
    if site.dtype() not in (*_RANGES, "int32"):
        raise site.refusal(f"no mapping from the type {site.dtype()}")
    given = site.get("output_dtype")
    dtype = dtype_word(site, given) if given else site.dtype(1)
    spread = _spread(site, 1)
    working = "float64" if dtype == "float64" else "float32"

    def call(x: Any, scale: Any, zero: Any = None) -> Any:
        whole = tf.cast(x, "int32")
        if zero is not None:
            whole -= tf.cast(spread(zero), "int32")
        return tf.cast(tf.cast(whole, working) * tf.cast(spread(scale), working), dtype)

    return call


@TABLE.add("DynamicQuantizeLinear")
def _dynamic_quantize_linear(site: Site) -> Call:
    tf, quantise = site.tf, quantiser(site.tf, "uint8")

    def call(x: Any) -> tuple[Any, Any, Any]:
        high = tf.maximum(tf.reduce_max(x), 0.0)
        low = tf.minimum(tf.reduce_min(x), 0.0)
        scale = (high - low) / 255.0
        zero = tf.cast(tf.clip_by_value(tf.round(-low / scale), 0.0, 255.0), "uint8")
        return quantise(x / scale, zero), scale, zero

    return call


def _output_dtype(site: Site) -> str:
    given = site.get("output_dtype")
    return dtype_word(site, given) if given else "uint8"


def _spread(site: Site, index: int) -> Call:
    """Scales as the data need them: one for all, one a slice of `axis`, or one a block of it."""
    tf, block, rank = site.tf, int(site.get("block_size", 0)), site.rank(index)
    if block:
        axis, shape = site.axis(int(site.get("axis", 1))), site.shape()
        return lambda s: tf.repeat(s, block, axis=axis)[_up_to(axis, shape[axis])]
    if rank == 0 or site.shape(index) == (1,):
        return lambda s: s
    if rank > 1:
        raise site.refusal("scales of several dimensions need a block_size")
    axis = site.axis(int(site.get("axis", 1)))
    tail = (1,) * (site.rank() - axis - 1)
    return lambda s: tf.reshape(s, (-1, *tail))


def _up_to(axis: int, size: int) -> tuple[slice, ...]:
    return (*(slice(None) for _ in range(axis)), slice(size))
