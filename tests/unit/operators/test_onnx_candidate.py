"""Custom operators of ONNX Runtime as candidates: the case's model, with them in the place of its nodes.

The files are written here field by field, and read back by a decoder of its own: `onnx` is not at hand.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators import case_folder, onnx_candidate
from matrix_adapters.operators.candidate import CandidateError
from matrix_adapters.operators.model_bytes import replaced
from matrix_adapters.protocol import Node, OperatorCase, Task, TaskKind, TensorSpec


def text(number: int, value: bytes) -> bytes:
    size = len(value)
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([number << 3 | 2]) + length + value


def node(operator: bytes, inputs: list[bytes], outputs: list[bytes], *attributes: bytes) -> bytes:
    parts = [text(1, i) for i in inputs] + [text(2, o) for o in outputs]
    return text(1, b"".join([*parts, text(3, b"n"), text(4, operator), *(text(5, a) for a in attributes)]))


def model(*nodes: bytes) -> bytes:
    """IR version 8 (a number); a graph with a long name, opset 13 of ONNX, a float, a double."""
    graph = b"".join([*nodes, text(2, b"g" * 200), text(11, b"an input"), text(12, b"an output")])
    tail = bytes([15 << 3 | 5]) + b"1234" + bytes([14 << 3 | 1]) + b"12345678"
    return bytes([1 << 3, 8]) + text(7, graph) + text(8, bytes([2 << 3, 13])) + tail


def decoded(message: bytes) -> list[tuple[int, bytes]]:
    """(number, content) of each field, by another way: a cursor over small numbers."""
    found, at = [], 0

    def number() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte, at = message[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        size = {1: 8, 5: 4}.get(tag & 7)
        if tag & 7 == 0:
            begin = at
            number()
            found.append((tag >> 3, message[begin:at]))
            continue
        size = number() if size is None else size
        found.append((tag >> 3, message[at : at + size]))
        at += size
    return found


def parts(message: bytes, number: int) -> list[bytes]:
    return [content for n, content in decoded(message) if n == number]


def changed(source: bytes) -> bytes:
    return replaced(source, operator="Fast", domain="mine", inputs=["x", ""], outputs=["y"])


def test_a_single_node_keeps_its_attributes_and_gets_another_name() -> None:
    made = changed(model(node(b"Gelu", [b"x"], [b"y"], b"approximate=tanh")))
    (graph,) = parts(made, 7)
    (one,) = parts(graph, 1)
    assert parts(one, 4) == [b"Fast"]
    assert parts(one, 7) == [b"mine"]
    assert parts(one, 1) == [b"x", b""]
    assert parts(one, 2) == [b"y"]
    assert parts(one, 5) == [b"approximate=tanh"]


def test_several_nodes_become_one_without_attributes() -> None:
    made = changed(model(node(b"Add", [b"x"], [b"t"], b"axis=1"), node(b"Relu", [b"t"], [b"y"])))
    (graph,) = parts(made, 7)
    (one,) = parts(graph, 1)
    assert parts(one, 5) == []


def test_all_else_is_left_as_it_was_and_the_domain_is_imported() -> None:
    source = model(node(b"Gelu", [b"x"], [b"y"]))
    made = changed(source)
    for number in (1, 14, 15):
        assert parts(made, number) == parts(source, number)
    for number in (2, 11, 12):
        assert parts(parts(made, 7)[0], number) == parts(parts(source, 7)[0], number)
    assert parts(made, 8) == [bytes([2 << 3, 13]), text(1, b"mine") + bytes([2 << 3, 1])]


@pytest.mark.parametrize(
    "source",
    [
        model(node(b"Gelu", [b"x"], [b"y"]))[:-3],
        model(),
        b"\x3b",
        b"\xff" * 12,
        text(7, b"\x0a\x7f"),
    ],
)
def test_what_is_no_such_file_is_an_error(source: bytes) -> None:
    with pytest.raises(ValueError, match=r"no ONNX file|no nodes"):
        changed(source)


# --- the candidate ----------------------------------------------------------------------------


def task(written: str, kind: str = "ort_custom_ops", folder: str = "") -> Task:
    given = {"name": "mine", "operator": "Gelu", "callable": written, "kind": kind, "folder": folder}
    return Task(kind=TaskKind.OPERATORS, framework="onnxruntime", adapter="x", options={"candidate": given})


def test_a_library_is_found_with_its_domain_and_operator(tmp_path: Path) -> None:
    (tmp_path / "mine.so").touch()
    found = onnx_candidate.of(task("mine.so:my.ops::Gelu", folder=str(tmp_path)))
    assert found is not None
    assert (found.library, found.domain, found.operator) == (tmp_path / "mine.so", "my.ops", "Gelu")
    assert onnx_candidate.of(Task(kind=TaskKind.OPERATORS, framework="onnxruntime", adapter="x")) is None


@pytest.mark.parametrize(
    ("written", "message"),
    [("gone.so:my::Gelu", "there is no file"), ("mine.so:Gelu", "is not written domain::Operator")],
)
def test_what_cannot_be_found_says_why(tmp_path: Path, written: str, message: str) -> None:
    (tmp_path / "mine.so").touch()
    with pytest.raises(CandidateError, match=message):
        onnx_candidate.of(task(written, folder=str(tmp_path)))


def test_a_kind_of_pytorch_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="not for ONNX Runtime"):
        onnx_candidate.of(task("mine.py:gelu", "python", str(tmp_path)))


def test_a_composite_case_gives_all_its_inputs(tmp_path: Path) -> None:
    case = OperatorCase(
        name="BiasGelu/plain",
        dtype="float32",
        nodes=(
            Node(op="Add", inputs=("x", "b"), outputs=("t",)),
            Node(op="Gelu", inputs=("t",), outputs=("y",)),
        ),
        inputs=(
            TensorSpec(name="x", dtype="float32", shape=(2,)),
            TensorSpec(name="b", dtype="float32", shape=(2,), constant=True),
        ),
        outputs=("y",),
        opset=20,
    )
    case_folder.write_case(tmp_path, case, {"x": np.zeros(2, "float32")})
    source = model(node(b"Add", [b"x", b"b"], [b"t"]), node(b"Gelu", [b"t"], [b"y"]))
    (tmp_path / case_folder.MODEL_FILE).write_bytes(source)
    (tmp_path / "mine.so").touch()
    custom = onnx_candidate.of(task("mine.so:my::BiasGelu", folder=str(tmp_path)))
    assert custom is not None
    (one,) = parts(parts(onnx_candidate.model(tmp_path, custom), 7)[0], 1)
    assert parts(one, 1) == [b"x", b"b"]
    assert parts(one, 2) == [b"y"]


def said(custom: onnx_candidate.CustomOperator, message: str) -> None:
    with onnx_candidate.refusals(custom):
        raise RuntimeError(message)


def test_what_onnx_runtime_says_of_a_candidate_is_told_in_its_own_words(tmp_path: Path) -> None:
    custom = onnx_candidate.CustomOperator(
        candidate="mine", library=tmp_path / "mine.so", domain="my", operator="Gelu"
    )
    with pytest.raises(CandidateError, match=r"mine\.so registers no operator my::Gelu"):
        said(custom, "Fatal error: my:Gelu(-1) is not a registered function/op")
    with pytest.raises(Unsupported, match=r"my::Gelu takes no tensor\(double\)"):
        said(
            custom, "Type Error: Type 'tensor(double)' of input parameter (x) of operator (Gelu) is invalid."
        )
    with pytest.raises(RuntimeError, match="another thing"):
        said(custom, "another thing")
