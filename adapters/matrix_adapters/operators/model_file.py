"""An operator case as an ONNX model: a graph of its nodes, its constants stored inside. Needs `onnx`.

The IR version is the lowest that the opset allows, so that old runtimes can read the file.
Attributes come as JSON knows them and take the type that the operator's schema gives them:
a whole number may stand for a float, a word for an element type ("to": "float16"), the words
"nan", "inf" and "-inf" for floats, and {"dtype", "shape", "values"} for a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto, TensorProto, helper

from matrix_adapters.operators import elements, generators
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec

_OLDEST_IR = 4  # before it, constants had to be inputs as well

#: domains other than ONNX's own, and the version of each that cases are written for
_DOMAINS = {"ai.onnx.ml": 3}
_OTHER_DOMAIN = 1

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class IllegalCase(ValueError):
    """The standard has no such operator, attribute or combination of types; the message says which."""


def build(case: OperatorCase, tensors: Mapping[str, npt.NDArray[Any]]) -> Any:
    """The `ModelProto` of `case`. `tensors`: what `generators.case_inputs` made; its constants are stored.

    The model has passed ONNX's checker and type inference: raises IllegalCase where it does not.
    """
    specs = {spec.name: spec for spec in case.inputs}
    graph = helper.make_graph(
        [_node(node, case.opset) for node in case.nodes],
        "case",
        [_value_info(spec) for spec in case.inputs if not spec.constant],
        [helper.make_empty_tensor_value_info(name) for name in case.outputs],
        [_initializer(spec, tensors[spec.name]) for spec in specs.values() if spec.constant],
    )
    opsets = [helper.make_opsetid("", case.opset)]
    domains = sorted({node.domain for node in case.nodes} - {"", "ai.onnx"})
    opsets += [helper.make_opsetid(name, _DOMAINS.get(name, _OTHER_DOMAIN)) for name in domains]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_ir_version(case.opset))
    return _inferred(model)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy (or ml_dtypes) dtype in which ONNX's evaluator computes with `dtype`."""
    found: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(element_type(dtype)))
    return found


def element_type(dtype: str) -> int:
    """ONNX's number for an element type's word. Raises IllegalCase for a word that it has not."""
    name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    if name not in TensorProto.DataType.keys():  # noqa: SIM118 - a protobuf enum, no mapping
        raise IllegalCase(f"ONNX has no element type {dtype!r}")
    number: int = TensorProto.DataType.Value(name)
    return number


def word(number: int) -> str:
    """The inverse of `element_type`."""
    name: str = TensorProto.DataType.Name(number)
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())


def as_computed(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """A stored tensor as the evaluator takes it: bfloat16 bits as ml_dtypes' bfloat16."""
    return array.view(numpy_dtype(dtype)) if dtype == elements.BFLOAT16 else array


def _ir_version(opset: int) -> int:
    try:
        found: int = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    except ValueError as error:
        newest = onnx.defs.onnx_opset_version()
        raise IllegalCase(f"opset {opset} is unknown to onnx {onnx.__version__} (up to {newest})") from error
    return max(found, _OLDEST_IR)


def _value_info(spec: TensorSpec) -> Any:
    return helper.make_tensor_value_info(spec.name, element_type(spec.dtype), spec.shape)


def _initializer(spec: TensorSpec, array: npt.NDArray[Any]) -> Any:
    return _tensor(spec.name, spec.dtype, spec.shape, array)


def _tensor(name: str, dtype: str, shape: Sequence[int], array: npt.NDArray[Any]) -> Any:
    """Raw little-endian bytes: right for bfloat16 bits as for any other type."""
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return helper.make_tensor(name, element_type(dtype), list(shape), raw, raw=True)


def _node(node: Node, opset: int) -> Any:
    name = f"{node.op}_{next(filter(None, node.outputs), '')}"  # runtimes refuse two of one name
    made = helper.make_node(node.op, list(node.inputs), list(node.outputs), name=name, domain=node.domain)
    schema = _schema(node, opset)
    for name, value in sorted(node.attributes.items()):
        kind = _attribute_type(node, name, schema)
        made.attribute.append(_attribute(f"{node.op}.{name}", name, value, kind))
    return made


def _schema(node: Node, opset: int) -> Any:
    """None for an operator of a domain that ONNX does not define."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = _DOMAINS.get(domain, _OTHER_DOMAIN) if domain else opset
    try:
        return onnx.defs.get_schema(node.op, version, domain)
    except onnx.defs.SchemaError:
        if domain:
            return None
        raise IllegalCase(f"ONNX has no operator {node.op!r} in opset {opset}") from None


def _attribute_type(node: Node, name: str, schema: Any) -> int | None:
    if schema is None:
        return None
    if name not in schema.attributes:
        known = ", ".join(sorted(schema.attributes)) or "none"
        raise IllegalCase(
            f"{node.op} (since opset {schema.since_version}) has no attribute {name!r}: it has {known}"
        )
    return int(schema.attributes[name].type.value)


def _attribute(where: str, name: str, value: Any, kind: int | None) -> Any:
    """`kind` None: as the value itself looks, lists by their first entry."""
    many = isinstance(value, (list, tuple))
    try:
        if kind is None:
            made = [_plain(item) for item in value] if many else _plain(value)
            return helper.make_attribute(name, made)
        singular = _SINGULAR.get(kind)
        if singular is not None:
            made = [_CONVERT[singular](item) for item in value] if many else [_CONVERT[singular](value)]
        elif kind in _CONVERT and not many:
            made = _CONVERT[kind](value)
        else:
            made = _refuse(value)
        return helper.make_attribute(name, made, attr_type=kind)
    except (TypeError, ValueError, KeyError) as error:
        expected = AttributeProto.AttributeType.Name(kind).lower() if kind is not None else "an attribute"
        raise IllegalCase(f"attribute {where} is {value!r}, not {expected}: {error}") from None


def _refuse(value: Any) -> Any:
    raise TypeError(f"{value!r} does not fit")


def _integer(value: Any) -> int:
    if isinstance(value, str):
        return element_type(value)
    if int(value) != value:
        raise ValueError("a whole number is needed")
    return int(value)


def _float(value: Any) -> float:
    return _FLOATS[value] if isinstance(value, str) else float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text is needed")
    return value


def _tensor_value(value: Any) -> Any:
    spec = TensorSpec(
        name="value",
        dtype=value["dtype"],
        shape=tuple(value["shape"]),
        generator="values",
        options={"values": value["values"]},
    )
    return _initializer(spec, generators.tensor(spec, 0))


def _plain(value: Any) -> Any:
    return _tensor_value(value) if isinstance(value, Mapping) else value


_CONVERT: dict[int, Any] = {
    AttributeProto.INT: _integer,
    AttributeProto.FLOAT: _float,
    AttributeProto.STRING: _text,
    AttributeProto.TENSOR: _tensor_value,
}
_SINGULAR = {
    AttributeProto.INTS: AttributeProto.INT,
    AttributeProto.FLOATS: AttributeProto.FLOAT,
    AttributeProto.STRINGS: AttributeProto.STRING,
    AttributeProto.TENSORS: AttributeProto.TENSOR,
}


def _with_shapes(model: Any) -> Any:
    """A copy to be checked: the checker wants a shape of every output, also where none follows."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for output in copy.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.shape.SetInParent()
    return copy


def _inferred(model: Any) -> Any:
    """The model with the types (and, where they follow, shapes) of its outputs.

    An output whose type does not follow (another domain's operator) stays without one.
    """
    try:
        typed = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
        known = {value.name: value for value in typed.graph.output if value.type.WhichOneof("value")}
        for output in model.graph.output:
            if output.name in known:
                output.CopyFrom(known[output.name])
        if len(known) == len(model.graph.output):
            onnx.checker.check_model(_with_shapes(model))
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise IllegalCase(lines[-1] if lines and lines[0].endswith(":") else " ".join(lines)[:300]) from error
    return model
