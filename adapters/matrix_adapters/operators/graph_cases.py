"""The operators of a model's ONNX file as cases, each with how many nodes are that very case. Kind GRAPH.

Shapes come from ONNX's own inference at the shapes that are fed. Numbers that decide what a node does
(axes, a scalar exponent) are the model's own; large weights are drawn anew, of the same shape. What
cannot be a case of its own (a shape computed from data, a subgraph) is left out, counted, with the reason.

Needs `onnx`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matrix_adapters.launch import Launch, jsonable
from matrix_adapters.operators import graph_shapes
from matrix_adapters.protocol import (
    Node,
    OperatorCase,
    Result,
    State,
    Task,
    TensorSpec,
    content_hash,
    plain,
    write_atomic,
)

CASES_FILE = "cases.json"
#: they compute nothing of a model's inputs
_PASSED_OVER = frozenset({"Constant", "Identity", "Shape", "ConstantOfShape", "Size"})
#: inputs by position whose values decide shapes: they must be constants of the file
_DECIDING: Mapping[str, tuple[int, ...]] = {
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceSum": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
}
#: inputs by position that name the shape of the output: where that is known, so are they
_SHAPE_OF_OUTPUT: Mapping[str, int] = {"Expand": 1, "Reshape": 1}
#: elements of a constant whose values may be the model's own
_KEPT = 64
#: of indices into several axes at once, which cannot be drawn
_KEPT_INDICES = 4096
#: their inputs at these positions must be above zero to have an ordinary answer
_POSITIVE: Mapping[str, tuple[int, ...]] = {
    "BatchNormalization": (4,),
    "DequantizeLinear": (1,),
    "Div": (1,),
    "Log": (0,),
    "Pow": (0,),
    "QuantizeLinear": (1,),
    "Reciprocal": (0,),
    "Sqrt": (0,),
}
#: weights that make a recurrence chaotic where they are large: every rounding error would grow
_RECURRENT: Mapping[str, tuple[int, ...]] = {"GRU": (1, 2), "LSTM": (1, 2), "RNN": (1, 2)}
_INDEXING: Mapping[str, int] = {"Gather": 0, "GatherElements": 0}  # and the default of `axis`
#: their indices have to fit other inputs in more ways than one axis' size
_INDEXED = frozenset({"GatherND", "OneHot", "ScatterElements", "ScatterND"})


class _LeftOut(Exception):
    """This node cannot be a case of its own; the message says why."""


def handle(task: Task, launch: Launch) -> Result:
    """Read `artefacts["onnx"]` at the shapes of `options["inputs"]`; leave cases.json, a list of
    {"case", "count"} in the order of the graph, and `artefacts["left_out"]`, reason -> nodes."""
    import onnx

    begin = time.perf_counter()
    launch.heart.enter("graph")
    with launch.heart.beating():
        graph = _Graph(Path(task.artefacts["onnx"]), dict(task.options["inputs"]))
        cases, left_out = graph.cases(str(task.options.get("name", "model")))
    told = [{"case": plain(case), "count": count} for case, count in cases]
    write_atomic(launch.out_dir / CASES_FILE, json.dumps(told, allow_nan=False) + "\n")
    launch.phases["graph_s"] = time.perf_counter() - begin
    launch.versions["onnx"] = onnx.__version__
    launch.artefacts.update({"cases": len(cases), "left_out": left_out})
    return launch.result(State.OK)


class _Graph:
    """A model file at fixed input shapes: what is known of each of its values."""

    def __init__(self, path: Path, shapes: Mapping[str, Any]) -> None:
        model = graph_shapes.settled(path, shapes)
        self._graph = model.graph
        self._opset = next(i.version for i in model.opset_import if i.domain in ("", "ai.onnx"))
        self._known: dict[str, tuple[str, tuple[int, ...]]] = {}
        for value in (*self._graph.input, *self._graph.value_info, *self._graph.output):
            if (facts := graph_shapes.facts_of(value)) is not None:
                self._known[value.name] = (_word(facts[0]), facts[1])
        self._constants: set[str] = set()
        for tensor in self._graph.initializer:
            self._constants.add(tensor.name)
            self._known[tensor.name] = (_word(tensor.data_type), tuple(tensor.dims))
        values = graph_shapes.small_constants(self._graph)
        for name, array in values.items():
            self._constants.add(name)
            self._known.setdefault(name, (array.dtype.name, array.shape))
        self._values = {name: array for name, array in values.items() if array.size <= _KEPT_INDICES}

    def cases(self, model: str) -> tuple[list[tuple[OperatorCase, int]], dict[str, int]]:
        """Every different case once, in the order of the graph, and the nodes that are none, by reason."""
        used = _used(self._graph)
        found: dict[str, OperatorCase] = {}
        counts: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        numbers: Counter[str] = Counter()
        for node in self._graph.node:
            if not any(name in used for name in node.output):
                continue
            fixed = not set(filter(None, node.input)) - self._constants
            if fixed or node.op_type in _PASSED_OVER:
                if fixed or node.op_type != "Identity":  # the same in every call: a runtime folds it
                    self._constants.update(node.output)
                if node.op_type == "Identity":
                    self._alias(node.input[0], node.output[0])
                continue
            try:
                case = self._case(node, used)
            except _LeftOut as reason:
                left_out[f"{node.op_type}: {reason}"] += 1
                continue
            key = content_hash(case)
            counts[key] += 1
            if key not in found:
                numbers[node.op_type] += 1
                name = f"{node.op_type}/{model}_{numbers[node.op_type]:02d}"
                found[key] = dataclasses.replace(case, name=name, seed=int(key[:8], 16) >> 1)
        return [(case, counts[key]) for key, case in found.items()], dict(left_out)

    def _alias(self, name: str, other: str) -> None:
        """What is known of `name` holds for `other`."""
        if name in self._known:
            self._known[other] = self._known[name]
        if name in self._values:
            self._values[other] = self._values[name]

    def _case(self, node: Any, used: set[str]) -> OperatorCase:
        names: dict[str, str] = {}
        specs: list[TensorSpec] = []
        for position, name in enumerate(node.input):
            if name and name not in names:
                names[name] = f"X{position}"
                specs.append(self._spec(node, position, name))
        outputs = [f"Y{i}" if name in used else "" for i, name in enumerate(node.output)]
        while outputs and not outputs[-1]:
            outputs.pop()
        made = Node(
            op=node.op_type,
            inputs=tuple(names[name] if name else "" for name in node.input),
            outputs=tuple(outputs),
            attributes=_attributes(node),
            domain=node.domain if node.domain != "ai.onnx" else "",
        )
        around = (*node.output[:1], *filter(None, node.input))
        given = [self._known[name][0] for name in around if name in self._known]
        dtype = next((word for word in given if "float" in word), given[0] if given else "float32")
        return OperatorCase(
            name=node.op_type,
            dtype=dtype,
            nodes=(made,),
            inputs=tuple(specs),
            outputs=tuple(output for output in outputs if output),
            opset=self._opset,
            oracle="float64" if "float" in dtype else "as-is",
        )

    def _spec(self, node: Any, position: int, name: str) -> TensorSpec:
        if name not in self._values and position == _SHAPE_OF_OUTPUT.get(node.op_type):
            return self._output_shape(node, position)
        if name not in self._known:
            raise _LeftOut("the shape of an input is not known before it runs")
        dtype, shape = self._known[name]
        constant = name in self._constants
        spec = TensorSpec(name=f"X{position}", dtype=dtype, shape=shape, constant=constant)
        if self._is_its_own(node, position, name):
            values = jsonable(self._values[name].reshape(-1).tolist())
            return dataclasses.replace(spec, generator="values", options={"values": values})
        if position in _DECIDING.get(node.op_type, ()):
            raise _LeftOut("what decides its shape is computed by the model")
        if node.op_type in _INDEXING and position == 1:
            axis = next((a.i for a in node.attribute if a.name == "axis"), _INDEXING[node.op_type])
            size = self._known.get(node.input[0], ("", ()))[1]
            if not size:
                raise _LeftOut("the shape of an input is not known before it runs")
            return dataclasses.replace(spec, generator="indices", options={"size": int(size[axis])})
        if node.op_type in _INDEXED and "int" in dtype:
            raise _LeftOut("its indices have to fit the data")
        if dtype == "bool":
            return dataclasses.replace(spec, generator="bools")
        if "int" in dtype:  # none is zero: one of them may divide
            return dataclasses.replace(spec, generator="integers", options={"low": 1, "high": 8})
        if position in _RECURRENT.get(node.op_type, ()):
            return dataclasses.replace(spec, options={"std": 1 / math.sqrt(shape[-1])})
        if position in _POSITIVE.get(node.op_type, ()):
            return dataclasses.replace(spec, generator="positive")
        return spec

    def _is_its_own(self, node: Any, position: int, name: str) -> bool:
        """Whether the values of a constant are part of what the node does."""
        array = self._values.get(name)
        if array is None:
            return False
        if node.op_type in _INDEXED and array.dtype.kind == "i":
            return True
        return array.size <= _KEPT and (position in _DECIDING.get(node.op_type, ()) or _decides(array))

    def _output_shape(self, node: Any, position: int) -> TensorSpec:
        """What a model computes of its input's shape, as the number that it is at these shapes."""
        if node.output[0] not in self._known:
            raise _LeftOut("what decides its shape is computed by the model")
        sizes = list(self._known[node.output[0]][1])
        return TensorSpec(
            name=f"X{position}",
            dtype="int64",
            shape=(len(sizes),),
            generator="values",
            options={"values": sizes},
            constant=True,
        )


def _decides(array: Any) -> bool:
    """Whether its values are part of what a node does: axes, an exponent; not a bias that is short."""
    return array.size == 1 or array.dtype.kind in "iub"


def _used(graph: Any) -> set[str]:
    """Every value that a node, a subgraph, or the caller takes."""
    used = {value.name for value in graph.output}
    for node in graph.node:
        used |= set(filter(None, node.input))
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                used |= _used(inner)
    return used


def _word(number: int) -> str:
    from matrix_adapters.operators import model_file

    return model_file.word(number)


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import AttributeProto, helper, numpy_helper

    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise _LeftOut("it holds a subgraph")
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.TENSOR:
            array = numpy_helper.to_array(value)
            value = {
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "values": jsonable(array.reshape(-1).tolist()),
            }
        elif isinstance(value, bytes):
            value = value.decode("utf-8")
        elif isinstance(value, Iterable) and not isinstance(value, str):
            value = [item.decode("utf-8") if isinstance(item, bytes) else item for item in value]
        if node.op_type == "Cast" and attribute.name == "to":
            value = _word(int(attribute.i))
        found[attribute.name] = jsonable(value)
    return found
