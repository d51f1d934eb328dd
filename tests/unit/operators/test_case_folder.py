"""A prepared case on disk: what was written is read, and the strides are real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy

from matrix_adapters import tensors
from matrix_adapters.operators import case_folder, generators
from matrix_adapters.protocol import Node, OperatorCase, ProtocolError, TensorSpec

SHAPES = hypothesis_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


def case(*inputs: TensorSpec) -> OperatorCase:
    node = Node(
        op="Concat", inputs=tuple(spec.name for spec in inputs), outputs=("Y",), attributes={"axis": 0}
    )
    return OperatorCase(
        name="Concat/x", dtype="float32", nodes=(node,), inputs=inputs, outputs=("Y",), opset=21
    )


def spec(name: str = "X", **fields: Any) -> TensorSpec:
    return TensorSpec(**({"name": name, "dtype": "float32", "shape": (3, 4)} | fields))


def written(folder: Path, *inputs: TensorSpec) -> OperatorCase:
    made = case(*inputs)
    case_folder.write_case(folder, made, generators.case_inputs(made))
    return made


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    made = written(folder, spec(), spec("B", dtype="bfloat16"), spec("C", dtype="int64", constant=True))
    expected = {"Y": np.array([[0.1]])}
    oracle = {"outputs": {"Y": {"dtype": "float32", "shape": [1, 1]}}, "onnx": "1", "notes": []}
    case_folder.write_oracle(folder, oracle, expected)
    prepared = case_folder.read(folder)
    assert prepared.case == made
    assert prepared.oracle == oracle
    assert prepared.expected is not None
    np.testing.assert_array_equal(prepared.expected["Y"], expected["Y"])
    values = generators.case_inputs(made)
    assert list(prepared.inputs) == ["X", "B"]  # the constant is in the model
    for name, array in prepared.inputs.items():
        np.testing.assert_array_equal(array, values[name])
    assert prepared.inputs["B"].dtype == np.uint16


def test_a_failed_oracle_has_no_expected_outputs(tmp_path: Path) -> None:
    written(tmp_path, spec())
    case_folder.write_oracle(tmp_path, {"failed": {"code": "random", "text": "drawn"}}, None)
    prepared = case_folder.read(tmp_path)
    assert prepared.expected is None
    assert prepared.oracle["failed"]["text"] == "drawn"


def test_the_same_case_is_written_with_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path / name, spec(), spec("B", generator="special"))
    for file in (case_folder.CASE_FILE, case_folder.INPUTS_FILE):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@given(
    SHAPES, st.sampled_from(["transposed", "strided", "contiguous"]), st.sampled_from(["float32", "uint16"])
)
def test_a_layout_changes_strides_and_no_value(shape: tuple[int, ...], layout: str, dtype: str) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    out = case_folder.laid_out(array, spec(shape=shape, layout=layout))
    assert out.shape == array.shape
    assert out.dtype == array.dtype
    np.testing.assert_array_equal(out, array)
    assert not np.shares_memory(out, array)
    out[...] = 7  # what a framework writes into its input is the case's own memory
    assert array.size == 0 or not (array == 7).all() or array.size == 1


def test_each_layout_has_the_strides_that_its_name_says() -> None:
    array = np.zeros((2, 3, 4), np.float32)
    strides = {
        layout: case_folder.laid_out(array, spec(shape=array.shape, layout=layout)).strides
        for layout in case_folder.LAYOUTS
    }
    assert strides == {
        "contiguous": (48, 16, 4),
        "transposed": (4, 8, 24),
        "strided": (96, 32, 8),
        "broadcast": (0, 16, 4),
    }


def test_feed_has_the_layouts_of_the_case(tmp_path: Path) -> None:
    written(tmp_path, spec(layout="strided"), spec("B", layout="broadcast"), spec("C", constant=True))
    feed = case_folder.feed(tmp_path)
    assert list(feed) == ["X", "B"]
    assert feed["X"].strides == (32, 8)
    assert feed["B"].strides == (0, 4)
    np.testing.assert_array_equal(feed["B"], tensors.load(tmp_path / case_folder.INPUTS_FILE)["B"])


def test_values_that_differ_are_not_broadcast() -> None:
    with pytest.raises(ValueError, match="'X': values that differ cannot share memory"):
        case_folder.laid_out(np.arange(4.0), spec(shape=(4,), layout="broadcast"))


def test_nan_may_be_broadcast() -> None:
    array = np.full((3, 2), np.nan, np.float32)
    assert case_folder.laid_out(array, spec(shape=(3, 2), layout="broadcast")).strides[0] == 0


def test_a_layout_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="no layout 'diagonal', use contiguous"):
        case_folder.laid_out(np.zeros(3), spec(shape=(3,), layout="diagonal"))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "has no array 'X'"),
        ({"X": np.zeros((4, 3))}, r"'X' is \[4, 3\] in the file, \[3, 4\] in the case"),
    ],
    ids=["missing", "shape"],
)
def test_inputs_that_do_not_fit_the_case_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], words: str
) -> None:
    written(tmp_path, spec())
    tensors.save(tmp_path / case_folder.INPUTS_FILE, arrays)
    with pytest.raises(ValueError, match=words):
        case_folder.feed(tmp_path)


def test_a_file_that_is_no_case_says_what_is_wrong(tmp_path: Path) -> None:
    written(tmp_path, spec())
    data = json.loads((tmp_path / case_folder.CASE_FILE).read_text())
    data["opset"] = "21"
    (tmp_path / case_folder.CASE_FILE).write_text(json.dumps(data))
    with pytest.raises(ProtocolError, match=r"OperatorCase\.opset: int is needed"):
        case_folder.read_case(tmp_path)


def test_a_folder_without_a_case_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        case_folder.feed(tmp_path)
