"""An ONNX model with every float widened to float64: what the file computes, without its rounding.

Weights keep their values (a float32 number is a float64 number), so the promoted
model run in float64 is the reference for the model as it is. Needs `onnx`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference.op_run import OpRun

_NARROW = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})

#: operator -> the attribute that names an element type, and whether it means float32 when absent
_TYPE_ATTRIBUTES = {
    "Cast": ("to", False),
    "EyeLike": ("dtype", False),
    "Bernoulli": ("dtype", False),
    "RandomNormalLike": ("dtype", False),
    "RandomUniformLike": ("dtype", False),
    "RandomNormal": ("dtype", True),
    "RandomUniform": ("dtype", True),
    "SequenceEmpty": ("dtype", True),
    "BlackmanWindow": ("output_datatype", True),
    "HammingWindow": ("output_datatype", True),
    "HannWindow": ("output_datatype", True),
    "MelWeightMatrix": ("output_datatype", True),
    "DequantizeLinear": ("output_dtype", False),
    "Attention": ("softmax_precision", False),
}


class Erf(OpRun):  # type: ignore[misc]
    """The evaluator's own (onnx 1.23) rounds to float32 inside, whatever it is given."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (_erf(x).astype(x.dtype),)


class Gelu(OpRun):  # type: ignore[misc]
    """The evaluator expands it into a function whose constants are float32."""

    op_domain = ""

    def _run(self, x: np.ndarray, approximate: str = "none") -> tuple[np.ndarray]:
        wide = x.astype(np.float64)
        if approximate == "tanh":
            inner = np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
        else:
            inner = _erf(wide / math.sqrt(2))
        return ((0.5 * wide * (1 + inner)).astype(x.dtype),)


#: replacements for operators of `onnx.reference` that do not keep float64
OPERATORS = (Erf, Gelu)

_erf = np.vectorize(math.erf, otypes=[np.float64])


def promote(model: Any) -> Any:
    """A copy of `model` in float64: inputs, outputs, weights, constants, casts, subgraphs, functions."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _promote_graph(wide.graph)
    for function in wide.functions:
        del function.value_info[:]
        _promote_nodes(function.node)
    return wide


def _promote_graph(graph: Any) -> None:
    for tensor in graph.initializer:
        _promote_tensor(tensor)
    for sparse in graph.sparse_initializer:
        _promote_tensor(sparse.values)
    for value in (*graph.input, *graph.output):
        _promote_type(value.type)
    del graph.value_info[:]  # notes on types that are no longer true
    _promote_nodes(graph.node)


def _promote_nodes(nodes: Iterable[Any]) -> None:
    for node in nodes:
        if node.domain in ("", "ai.onnx"):
            _promote_named_type(node)
            _promote_constant(node)
        for attribute in node.attribute:
            _promote_attribute(attribute)


def _promote_attribute(attribute: Any) -> None:
    if attribute.HasField("t"):
        _promote_tensor(attribute.t)
    if attribute.HasField("sparse_tensor"):
        _promote_tensor(attribute.sparse_tensor.values)
    if attribute.HasField("g"):
        _promote_graph(attribute.g)
    for tensor in attribute.tensors:
        _promote_tensor(tensor)
    for graph in attribute.graphs:
        _promote_graph(graph)


def _promote_named_type(node: Any) -> None:
    name, float_by_default = _TYPE_ATTRIBUTES.get(node.op_type, ("", False))
    found = next((a for a in node.attribute if a.name == name), None)
    if found is not None and found.i in _NARROW:
        found.i = TensorProto.DOUBLE
    elif found is None and float_by_default:
        node.attribute.append(helper.make_attribute(name, TensorProto.DOUBLE))


def _promote_constant(node: Any) -> None:
    """Constants given as plain numbers are float32 by definition: write them as float64 tensors."""
    if node.op_type == "Constant":
        for attribute in node.attribute:
            if attribute.name in ("value_float", "value_floats"):
                numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(np.asarray(numbers, np.float64))
                attribute.CopyFrom(helper.make_attribute("value", tensor))
    elif node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(
            helper.make_attribute("value", numpy_helper.from_array(np.zeros(1, np.float64)))
        )


def _promote_tensor(tensor: Any) -> None:
    if tensor.data_type in _NARROW:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def _promote_type(kind: Any) -> None:
    which = kind.WhichOneof("value")
    if which == "tensor_type" and kind.tensor_type.elem_type in _NARROW:
        kind.tensor_type.elem_type = TensorProto.DOUBLE
    elif which in ("sequence_type", "optional_type"):
        _promote_type(getattr(kind, which).elem_type)
