"""The backend node tests of the ONNX project, from the installed `onnx`: models and generated data.

They are what a backend has to pass to be called one. The package carries no stored data for them
(since 1.15 or so): it computes inputs and outputs in NumPy when it is asked, in half a minute.
A case is called by operator and test: "Abs/abs" is `test_abs`; a test of an operator's
function body ("..._expanded") belongs to the operator that it expands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from matrix_adapters.operators import elements, model_file
from matrix_adapters.operators.foreign import STRING, Array, Collection, ForeignTest
from matrix_adapters.protocol import Node, OperatorCase, Reason, TensorSpec

#: domains of which runtimes promise nothing: what is in them may change or go
_PREVIEW = ("ai.onnx.preview", "ai.onnx.training")
_DRAWN = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_EXPANDED = "_expanded"


def collect() -> Collection:
    """Every node test of this release of `onnx`."""
    from onnx.backend.test.case.node import collect_testcases

    given = collect_testcases(None)
    version = onnx.__version__
    return Collection(
        source=f"onnx {version} node test", versions={"onnx": version}, tests=_tests(list(given))
    )


def _tests(given: Sequence[Any]) -> Iterator[ForeignTest]:
    single = {t.name: t.model.graph.node[0].op_type for t in given if len(t.model.graph.node) == 1}
    for test in given:
        first = test.model.graph.node[0].op_type
        operator = single.get(test.name.partition(_EXPANDED)[0], first)
        for number, (inputs, outputs) in enumerate(test.data_sets):
            name = f"{operator}/{test.name.removeprefix('test_')}" + (f"-{number}" if number else "")
            yield _test(name, test, inputs, outputs)


def _test(name: str, test: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> ForeignTest:
    graph = test.model.graph
    # A graph may list its initialisers as inputs; data is given for the others.
    stored = {tensor.name for tensor in graph.initializer}
    fed = [value for value in graph.input if value.name not in stored]
    dtypes = {value.name: _word(value.type) for value in (*fed, *graph.output)}
    refused = _refused(test.model, fed, inputs, outputs, dtypes)
    given: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    if refused is None:
        given = {value.name: _array(data) for value, data in zip(fed, inputs, strict=True)}
        expected = {value.name: _array(data) for value, data in zip(graph.output, outputs, strict=True)}
    case = OperatorCase(
        name=name,
        dtype=_under_test([v.name for v in fed], [v.name for v in graph.output], dtypes),
        nodes=tuple(_node(node) for node in graph.node),
        inputs=tuple(
            TensorSpec(name=n, dtype=dtypes[n], shape=tuple(a.shape), generator="values")
            for n, a in given.items()
        ),
        outputs=tuple(value.name for value in graph.output),
        opset=max((o.version for o in test.model.opset_import if o.domain in ("", "ai.onnx")), default=1),
        oracle="as-is",
    )
    return ForeignTest(
        case=case,
        test=test.name,
        rtol=float(test.rtol),
        atol=float(test.atol),
        inputs=given,
        expected=expected,
        dtypes={value.name: dtypes[value.name] for value in graph.output},
        model=b"" if refused else test.model.SerializeToString(deterministic=True),
        refused=refused,
        open=_open(graph.node, given),
    )


def _node(node: Any) -> Node:
    """Its attributes are in the model file, and need not be told again: whoever runs this has the file."""
    return Node(op=node.op_type, inputs=tuple(node.input), outputs=tuple(node.output), domain=node.domain)


def _word(kind: Any) -> str:
    """ "float32", or "sequence", "optional", "map" for what is no tensor."""
    which = kind.WhichOneof("value") or "unknown"
    if which != "tensor_type":
        return str(which).removesuffix("_type")
    return model_file.word(kind.tensor_type.elem_type)


def _refused(
    model: Any, fed: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], dtypes: Mapping[str, str]
) -> Reason | None:
    domains = {opset.domain for opset in model.opset_import} | {node.domain for node in model.graph.node}
    if preview := sorted(d for d in domains if d.startswith(_PREVIEW)):
        text = f"preview operators ({preview[0]}) are not run: no runtime promises them"
        return Reason(code="domain", text=text)
    for name, dtype in dtypes.items():
        if dtype in ("sequence", "optional", "map", "sparse_tensor"):
            return Reason(code="no_tensor", text=f"only tensors are fed and compared: {name} is a {dtype}")
        if dtype not in elements.known() | {STRING}:
            return Reason(code="element_type", text=f"NumPy has no {dtype}, the type of {name}")
    if len(fed) != len(inputs) or len(outputs) != len(model.graph.output):
        text = f"{len(inputs)} arrays are given for {len(fed)} inputs of the model"
        return Reason(code="data", text=text)
    return None


def _array(data: Any) -> Array:
    return numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else np.asarray(data)


def _under_test(fed: Sequence[str], made: Sequence[str], dtypes: Mapping[str, str]) -> str:
    """The first floating-point input's type; else the first input's, or output's."""
    found = [dtypes[name] for name in (*fed, *made)]
    return next((dtypes[name] for name in fed if elements.is_float(dtypes[name])), found[0])


def _open(nodes: Sequence[Any], given: Mapping[str, Array]) -> str:
    drawn = sorted({node.op_type for node in nodes} & _DRAWN)
    for node in nodes:
        if node.op_type == "Dropout" and len(node.input) > 2:
            training, ratio = given.get(node.input[2]), given.get(node.input[1])
            if training is not None and training.any() and (ratio is None or ratio.any()):
                drawn.append("Dropout")
    return f"{', '.join(drawn)} draws its output at random" if drawn else ""
