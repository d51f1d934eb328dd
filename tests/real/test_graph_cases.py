"""Operators read from a model's ONNX file: each different one once, with how many nodes are that one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from matrix.catalog import load
from matrix.environments.base import BuiltEnvironment
from matrix.sweep.from_model import as_catalog_case
from matrix_adapters.protocol import Result, State, Task, TaskKind

pytestmark = pytest.mark.real

#: products of which three are equal, one of them by another name of its weight; sums with different short
#: biases; numbers that decide, written in two ways; a shape computed from a shape; indices from outside
MODEL = """
import sys
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper

def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)

weights = np.zeros((8, 8), np.float32)
graph = helper.make_graph(
    [
        helper.make_node("Gather", ["table", "ids"], ["x"], axis=0),
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("MatMul", ["a", "w2"], ["b"]),
        helper.make_node("MatMul", ["b", "w3"], ["c"]),
        helper.make_node("Pow", ["c", "two"], ["d"]),
        helper.make_node("Softmax", ["d"], ["e"], axis=-1),
        helper.make_node("Reshape", ["e", "to"], ["f"]),
        helper.make_node("Shape", ["f"], ["s"]),
        helper.make_node("Add", ["w1", "w2"], ["folded"]),
        helper.make_node("NonZero", ["f"], ["g"]),
        helper.make_node("Identity", ["w1"], ["w1b"]),
        helper.make_node("MatMul", ["x", "w1b"], ["m"]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Mul", ["c", "half"], ["i"]),
        helper.make_node("Add", ["m", "b1"], ["j"]),
        helper.make_node("Add", ["j", "b2"], ["k"]),
        helper.make_node("Shape", ["d"], ["sd"]),
        helper.make_node("Reshape", ["c", "sd"], ["l"]),
        helper.make_node("GatherND", ["c", "at"], ["h"]),
        helper.make_node("GatherND", ["c", "first"], ["o"]),
        # a mask from the shape of the input, as exporters write it
        helper.make_node("Shape", ["ids"], ["si"]),
        helper.make_node("Gather", ["si", "one"], ["n"], axis=0),
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("Greater", ["r", "zero"], ["after"]),
        helper.make_node("Unsqueeze", ["after", "last"], ["mask"]),
        helper.make_node("Where", ["mask", "m", "half"], ["p"]),
    ],
    "tiny",
    [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 3]),
        helper.make_tensor_value_info("at", TensorProto.INT64, ["batch", 3]),
    ],
    [
        helper.make_tensor_value_info("g", TensorProto.INT64, None),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "iklhop"),
    ],
    [
        constant("table", np.zeros((50, 8), np.float32)),
        constant("w1", weights), constant("w2", weights), constant("w3", np.zeros((8, 100), np.float32)),
        constant("one", np.int64(1)), constant("zero", np.int64(0)), constant("last", np.array([1])),
        constant("first", np.array([[0, 1]])),
        constant("b1", np.zeros(8, np.float32)), constant("b2", np.ones(8, np.float32)),
        constant("two", np.float32(2)), constant("to", np.array([-1, 100])),
    ],
    value_info=[helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.save(model, sys.argv[1])
"""


@pytest.fixture(scope="module")
def found(
    built: Callable[[str], BuiltEnvironment], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[dict[str, Any]], Result]:
    from matrix.execution.local import run_worker

    folder = tmp_path_factory.mktemp("graph")
    environment = built("pytorch")
    command = [str(environment.python), "-c", MODEL, str(folder / "model.onnx")]
    subprocess.run(command, check=True, env=environment.environ())
    task = Task(
        kind=TaskKind.GRAPH,
        framework="pytorch",
        adapter="matrix_adapters.pytorch",
        artefacts={"onnx": str(folder / "model.onnx")},
        options={"name": "tiny", "inputs": {"ids": [2, 3], "at": [2, 3]}},
    )
    result = run_worker(environment, task, folder / "launch", timeout_s=120, stall_s=120)
    assert result.state is State.OK, result.reason
    return json.loads((folder / "launch" / "out" / "cases.json").read_text()), result


def test_equal_nodes_are_one_case_that_is_counted(found: tuple[list[dict[str, Any]], Result]) -> None:
    cases, _ = found
    counts = {one["case"]["name"]: one["count"] for one in cases}
    assert counts == {
        "Gather/tiny_01": 1,
        "MatMul/tiny_01": 3,
        "MatMul/tiny_02": 1,
        "Pow/tiny_01": 1,
        "Softmax/tiny_01": 1,
        "Reshape/tiny_01": 1,
        "Reshape/tiny_02": 1,
        "Mul/tiny_01": 1,
        "Add/tiny_01": 2,
        "GatherND/tiny_01": 1,
        "Where/tiny_01": 1,
        "NonZero/tiny_01": 1,
    }


def test_shapes_are_those_of_the_fed_inputs_and_small_constants_keep_their_values(
    found: tuple[list[dict[str, Any]], Result],
) -> None:
    cases = {one["case"]["name"]: one["case"] for one in found[0]}
    product = cases["MatMul/tiny_02"]["inputs"]
    assert [(spec["shape"], spec["constant"]) for spec in product] == [([2, 3, 8], False), ([8, 100], True)]
    power = cases["Pow/tiny_01"]["inputs"]
    assert (power[0]["generator"], power[1]["options"]) == ("positive", {"values": [2.0]})
    ids = cases["Gather/tiny_01"]["inputs"][1]
    assert (ids["generator"], ids["options"], ids["shape"]) == ("indices", {"size": 50}, [2, 3])
    assert cases["Reshape/tiny_01"]["inputs"][1]["options"] == {"values": [-1, 100]}
    assert cases["Reshape/tiny_02"]["inputs"][1]["options"] == {"values": [2, 3, 100]}
    mask = cases["Where/tiny_01"]["inputs"][0]
    assert (mask["shape"], mask["options"]) == ([3, 1], {"values": [False, True, True]})
    assert cases["GatherND/tiny_01"]["inputs"][1]["options"] == {"values": [0, 1]}
    assert cases["Mul/tiny_01"]["inputs"][1]["options"] == {"values": [0.5]}
    assert cases["Add/tiny_01"]["inputs"][1]["generator"] == "normal"  # a bias is drawn anew, and one case


def test_what_is_no_case_is_counted_with_the_reason(found: tuple[list[dict[str, Any]], Result]) -> None:
    assert found[1].artefacts["left_out"] == {"GatherND: its indices have to fit the data": 1}


def test_the_host_takes_them_as_timed_cases_of_that_model(found: tuple[list[dict[str, Any]], Result]) -> None:
    catalog = load()
    made = [as_catalog_case(one, "tiny", catalog) for one in found[0]]
    assert all(case.timed and case.model == "tiny" for case in made)
    product = next(case for case in made if case.case.name == "MatMul/tiny_01")
    assert (product.kind, product.count, product.depth) == ("matmul", 3, 8)
