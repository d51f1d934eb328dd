"""Conversions between types, and tensors that a node holds itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

#: numbers of TensorProto.DataType (onnx.proto3) for the types that TensorFlow's tensors can have here
_NUMBERED = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128",
    16: "bfloat16",
}  # fmt: skip
_WORDS = frozenset(_NUMBERED.values())


def dtype_word(site: Site, value: Any) -> str:
    """A type given as ONNX's number or as its word. Raises Unsupported for those not mapped."""
    word = _NUMBERED.get(value, f"number {value}") if isinstance(value, int) else str(value).lower()
    word = {"float": "float32", "double": "float64"}.get(word, word)
    if word not in _WORDS:
        raise site.refusal(f"no mapping of the type {word}")
    return word


def tensor_attribute(site: Site, value: Any) -> tuple[list[Any] | Any, str, tuple[int, ...]]:
    """A tensor that stands in an attribute: its values, its type, its shape.

    Either {"dtype", "shape"?, "values" or "value"}, or bare numbers, which are float32 or int64.
    """
    if isinstance(value, Mapping):
        values = value.get("values", value.get("value"))
        dtype = dtype_word(site, value.get("dtype", "float32"))
    else:
        values = value
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in _flat(values))
        dtype = "int64" if whole else "float32"
    shape = value.get("shape") if isinstance(value, Mapping) else None
    return values, dtype, tuple(shape) if shape is not None else np.shape(values)


@TABLE.add("Cast", attributes="to saturate round_mode")
def _cast(site: Site) -> Call:
    """`saturate` is about 8-bit floats only, which are not mapped."""
    tf, dtype = site.tf, dtype_word(site, site.get("to"))
    return lambda x: tf.cast(x, dtype)


@TABLE.add("CastLike", attributes="saturate round_mode")
def _cast_like(site: Site) -> Call:
    tf, dtype = site.tf, site.dtype(1)
    return lambda x, _: tf.cast(x, dtype)


@TABLE.add("BitCast", attributes="to")
def _bit_cast(site: Site) -> Call:
    tf, dtype = site.tf, dtype_word(site, site.get("to"))
    return lambda x: tf.bitcast(x, dtype)


@TABLE.add("Constant", attributes="value value_float value_floats value_int value_ints")
def _constant(site: Site) -> Call:
    array = constant_value(site)
    tensor = site.tf.constant(array[0], dtype=array[1], shape=array[2])
    return lambda: site.tf.identity(tensor)


def constant_value(site: Site) -> tuple[Any, str, tuple[int, ...]]:
    """What a Constant node holds: its values, its type, its shape."""
    given = site.node.attributes
    if "value" in given:
        return tensor_attribute(site, given["value"])
    for name, dtype in (("float", "float32"), ("int", "int64")):
        if f"value_{name}" in given:
            return given[f"value_{name}"], dtype, ()
        if f"value_{name}s" in given:
            values = given[f"value_{name}s"]
            return values, dtype, (len(values),)
    raise site.refusal("it holds no value")


@TABLE.add("ConstantOfShape", attributes="value")
def _constant_of_shape(site: Site) -> Call:
    tf = site.tf
    values, dtype, _ = tensor_attribute(site, site.get("value", [0.0]))
    (first,) = _flat(values)
    fill = tf.constant(first, dtype)
    shape = site.integers(0)
    return lambda *_: tf.fill(shape, fill)


@TABLE.add("EyeLike", attributes="dtype k")
def _eye_like(site: Site) -> Call:
    tf, (rows, columns), k = site.tf, site.shape(), int(site.get("k", 0))
    given = site.get("dtype")
    dtype = site.dtype() if given is None else dtype_word(site, given)
    length = min(rows, columns - k) if k >= 0 else min(rows + k, columns)
    if length <= 0:
        return lambda _: tf.zeros((rows, columns), dtype)
    return lambda _: tf.linalg.diag(
        tf.ones((length,), dtype), k=k, num_rows=rows, num_cols=columns, padding_value=0
    )


def _flat(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [leaf for item in values for leaf in _flat(item)]
    return [values]
