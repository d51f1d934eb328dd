"""A model's ONNX file at fixed input shapes, with everything worked out that follows from shapes alone.

Exporters leave arithmetic on shapes in the file (a mask as large as the input, a reshape to what the
input has): ONNX's own inference follows only a part of it. Here what is computed from shapes and small
constants is computed, by ONNX's reference evaluator, and becomes a constant; inference then goes on.

Needs `onnx`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

#: elements of what is computed here; larger constants are weights, and only their shapes matter
MOST = 1 << 16
_ROUNDS = 8
#: the same inputs give another answer
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_DATA = ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data")

Array = npt.NDArray[Any]


def settled(path: Path, shapes: Mapping[str, Any]) -> Any:
    """The `ModelProto` with graph inputs of these shapes; large constants have lost their values."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    for value in model.graph.input:
        if value.name in shapes:
            _fix(value, shapes[value.name])
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) > MOST:
            for field in _DATA:
                tensor.ClearField(field)
    for _ in range(_ROUNDS):
        _forget_names(model.graph)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        if not _folded(model):
            break
    return model


def small_constants(graph: Any) -> dict[str, Array]:
    """Values of initialisers and Constant nodes of at most `MOST` elements."""
    from onnx import numpy_helper

    found: dict[str, Array] = {}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= MOST and not tensor.external_data:
            found[tensor.name] = numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and (array := _constant(node)) is not None and array.size <= MOST:
            found[node.output[0]] = array
    return found


def facts_of(value: Any) -> tuple[int, tuple[int, ...]] | None:
    """Element type (ONNX's number) and shape of a tensor all of whose axes are numbers."""
    kind = value.type.tensor_type
    if not kind.elem_type or not kind.HasField("shape"):
        return None
    if not all(dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    return int(kind.elem_type), tuple(int(dim.dim_value) for dim in kind.shape.dim)


def _forget_names(graph: Any) -> None:
    """Axes that have names, a file's or of an earlier inference, would keep them."""
    known = [value for value in graph.value_info if facts_of(value) is not None]
    copies = [type(value).FromString(value.SerializeToString()) for value in known]
    del graph.value_info[:]
    graph.value_info.extend(copies)
    for value in graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.Clear()


def _folded(model: Any) -> int:
    """Turn nodes whose results are known into constants; how many."""
    from onnx import numpy_helper

    graph = model.graph
    values = small_constants(graph)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        if (facts := facts_of(value)) is not None:
            shapes[value.name] = facts[1]
    kept, before = [], len(graph.node)
    for node in graph.node:
        made = _result(node, values, shapes, model.opset_import)
        if made is None:
            kept.append(node)
            continue
        values |= made
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in made.items())
    copies = [type(node).FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(copies)
    return before - len(copies)


def _result(
    node: Any, values: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]], opsets: Any
) -> dict[str, Array] | None:
    """Outputs by name where they follow from what is known; None where not."""
    if node.domain not in ("", "ai.onnx") or node.op_type == "Constant" or node.op_type in _RANDOM:
        return None
    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return None
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        return {node.output[0]: _of_shape(node, shapes[node.input[0]])}
    given = {name: values[name] for name in node.input if name in values}
    if not node.input or len(given) < len(set(filter(None, node.input))):
        return None
    return _evaluated(node, given, opsets)


def _of_shape(node: Any, shape: tuple[int, ...]) -> Array:
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    limits = {attribute.name: int(attribute.i) for attribute in node.attribute}
    return np.array(shape[limits.get("start", 0) : limits.get("end", len(shape))], np.int64)


def _evaluated(node: Any, given: Mapping[str, Array], opsets: Any) -> dict[str, Array] | None:
    """By the reference evaluator; None for what it cannot do, or what would be large."""
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    names = [name for name in node.output if name]
    try:
        graph = helper.make_graph(
            [node],
            "folded",
            [],
            [helper.make_empty_tensor_value_info(name) for name in names],
            [numpy_helper.from_array(array, name) for name, array in given.items()],
        )
        model = helper.make_model(graph, opset_imports=list(opsets))
        made = ReferenceEvaluator(model).run(names, {})
    except Exception:  # whatever it is: the node stays what it was
        return None
    arrays = [np.asarray(array) for array in made]
    if any(array.size > MOST or array.dtype.kind not in "fiub" for array in arrays):
        return None
    return dict(zip(names, arrays, strict=True))


def _constant(node: Any) -> Array | None:
    """The array of a Constant, however it is written; None for text and sparse ones."""
    from onnx import helper, numpy_helper

    if not node.attribute:
        return None
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return np.asarray(numpy_helper.to_array(value))
    kinds = {"value_float": np.float32, "value_int": np.int64}
    kind = kinds.get(attribute.name.removesuffix("s"))
    return None if kind is None else np.asarray(value, kind)


def _fix(value: Any, shape: Iterable[int]) -> None:
    """Replace the axes of a graph input by numbers."""
    dims = value.type.tensor_type.shape.dim
    for dim, size in zip(dims, shape, strict=True):
        dim.Clear()
        dim.dim_value = int(size)
