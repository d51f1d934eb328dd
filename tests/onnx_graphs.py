"""Small ONNX models for tests, each a function that writes one file and returns its path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, STRING, BOOL, BFLOAT16 = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.STRING,
    TensorProto.BOOL,
    TensorProto.BFLOAT16,
)


def value(name: str, shape: Sequence[int | str | None] | None, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    weights: dict[str, np.ndarray] | None = None,
    opsets: dict[str, int] | None = None,
    ir_version: int = 10,
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), stored)
    imports = [helper.make_opsetid(domain, v) for domain, v in (opsets or {"": 20}).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def write(folder: Path, made: onnx.ModelProto, name: str = "model.onnx") -> Path:
    path = folder / name
    onnx.save(made, path)
    return path


def relu(shape: Sequence[int | str | None] = (1, 4), **kw: Any) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"], name="r")], [value("x", shape)], [value("y", shape)], **kw)


def linear(rows: int = 4, columns: int = 3) -> onnx.ModelProto:
    """y = x @ w + b, batch free."""
    random = np.random.default_rng(0)
    return model(
        [node("MatMul", ["x", "w"], ["xw"], name="mm"), node("Add", ["xw", "b"], ["y"], name="add")],
        [value("x", ["batch", rows])],
        [value("y", ["batch", columns])],
        weights={
            "w": random.standard_normal((rows, columns), np.float32),
            "b": random.standard_normal(columns, np.float32),
        },
    )


def lookup(rows: int = 10) -> onnx.ModelProto:
    """Rows of a table by int64 index, batch free."""
    table = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    return model(
        [node("Gather", ["table", "ids"], ["vectors"], name="look")],
        [value("ids", ["batch", "sequence"], INT64)],
        [value("vectors", ["batch", "sequence", 2])],
        weights={"table": table},
    )


def with_side_file(folder: Path, made: onnx.ModelProto, side: str = "weights.data") -> Path:
    """The model with every weight beside it."""
    path = folder / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location=side, size_threshold=0)
    return path


def if_and_loop() -> onnx.ModelProto:
    """y = x doubled `count` times (Loop), negated where `flip` (If): int64 and bool inputs."""
    body = helper.make_graph(
        [node("Add", ["held", "held"], ["next"], name="double"), node("Identity", ["go"], ["on"])],
        "body",
        [value("i", [], INT64), value("go", [], BOOL), value("held", ["batch", 2])],
        [value("on", [], BOOL), value("next", ["batch", 2])],
    )
    negative = helper.make_graph([node("Neg", ["grown"], ["a"])], "then", [], [value("a", ["batch", 2])])
    same = helper.make_graph([node("Identity", ["grown"], ["b"])], "else", [], [value("b", ["batch", 2])])
    return model(
        [
            node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
            node("Loop", ["count", "yes", "x"], ["grown"], name="loop", body=body),
            node("If", ["flip"], ["y"], name="if", then_branch=negative, else_branch=same),
        ],
        [value("x", ["batch", 2]), value("count", [], INT64), value("flip", [], BOOL)],
        [value("y", ["batch", 2])],
    )


def text_in_and_out() -> onnx.ModelProto:
    """Words with a '!' joined, and whether they equal 'w1': string in, string and bool out."""
    return model(
        [
            node("StringConcat", ["words", "ending"], ["joined"], name="join"),
            node("Equal", ["words", "wanted"], ["same"], name="same"),
        ],
        [value("words", ["batch"], STRING)],
        [value("joined", ["batch"], STRING), value("same", ["batch"], BOOL)],
        weights={"ending": np.array(["!"], object), "wanted": np.array(["w1"], object)},
    )
