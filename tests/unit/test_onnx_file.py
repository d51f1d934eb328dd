"""A user's ONNX file is looked at before anything is built, and refused with its own reason."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_graphs as graphs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_graphs import FLOAT, INT64, STRING, node, value

from matrix.artefacts.onnx_file import OnnxRefused, inspect, resolve_inputs, resolve_outputs
from matrix.catalog.types import InputEntry
from matrix.errors import ConfigError, ExitCode


def refusal(path: Path) -> tuple[str, str]:
    with pytest.raises(OnnxRefused) as caught:
        inspect(path)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value.reason.code, caught.value.reason.text


# --- what is in a file --------------------------------------------------------------------


def test_facts_name_inputs_outputs_opsets_and_operators(tmp_path: Path) -> None:
    facts = inspect(graphs.write(tmp_path, graphs.linear()))
    assert facts.inputs["x"].dtype == "float32"
    assert facts.inputs["x"].shape == ("batch", 4)
    assert facts.outputs["y"].shape == ("batch", 3)
    assert facts.opsets == {"ai.onnx": 20}
    assert facts.operators == {"Add": 1, "MatMul": 1}
    assert facts.ir_version == 10
    assert facts.size_bytes == (tmp_path / "model.onnx").stat().st_size
    assert not facts.has_external_data


def test_weights_that_old_files_list_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    made = graphs.linear()
    made.graph.input.append(value("w", [4, 3]))
    assert list(inspect(graphs.write(tmp_path, made)).inputs) == ["x"]


def test_control_flow_is_walked_into(tmp_path: Path) -> None:
    facts = inspect(graphs.write(tmp_path, graphs.if_and_loop()))
    assert facts.operators["Neg"] == 1
    assert {info.dtype for info in facts.inputs.values()} == {"float32", "int64", "bool"}


def test_text_is_a_type_of_its_own(tmp_path: Path) -> None:
    facts = inspect(graphs.write(tmp_path, graphs.text_in_and_out()))
    assert facts.inputs["words"].dtype == "string"


def test_the_hash_covers_the_side_files(tmp_path: Path) -> None:
    path = graphs.with_side_file(tmp_path, graphs.linear())
    before = inspect(path)
    assert before.side_files == ("weights.data",)
    assert before.size_bytes == path.stat().st_size + (tmp_path / "weights.data").stat().st_size
    content = bytearray((tmp_path / "weights.data").read_bytes())
    content[0] ^= 1
    (tmp_path / "weights.data").write_bytes(content)
    assert inspect(path).sha256 != before.sha256


def test_operators_that_only_a_runtime_knows_are_let_through_and_named(tmp_path: Path) -> None:
    made = graphs.model(
        [node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft")],
        [value("x", [4, 4])],
        [value("y", [4, 4])],
        opsets={"": 20, "com.microsoft": 1},
    )
    assert inspect(graphs.write(tmp_path, made)).unchecked == ("com.microsoft:FusedMatMul",)


# --- refusals -----------------------------------------------------------------------------


def test_no_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone.onnx")[0] == "missing"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refusal(tmp_path)[0] == "not_a_file"


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    assert refusal(tmp_path / "model.onnx")[0] == "empty"


def test_a_git_lfs_pointer_says_what_to_run(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n")
    code, text = refusal(path)
    assert code == "lfs_pointer"
    assert "git lfs pull" in text


@pytest.mark.parametrize(
    "content", [b"hello, world", b"<!DOCTYPE html><html>", b"PK\x03\x04" + bytes(30), b"\n"]
)
def test_something_else_is_not_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert refusal(path)[0] == "not_onnx"


def test_half_a_file_is_truncated(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.linear())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    code, text = refusal(path)
    assert code == "not_onnx"
    assert "truncated" in text


_WHOLE = [made.SerializeToString() for made in (graphs.linear(), graphs.if_and_loop(), graphs.lookup())]


@settings(max_examples=150, deadline=None)
@given(which=st.sampled_from(_WHOLE), share=st.floats(0, 1))
def test_any_prefix_of_a_file_is_refused_or_valid(
    tmp_path_factory: pytest.TempPathFactory, which: bytes, share: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "prefix.onnx"
    path.write_bytes(which[: int(share * len(which))])
    try:
        facts = inspect(path)
    except OnnxRefused as refused:
        assert refused.reason.text
    else:
        assert facts.outputs


@settings(max_examples=150, deadline=None)
@given(which=st.sampled_from(_WHOLE), position=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_one_wrong_byte_never_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, which: bytes, position: float, byte: int
) -> None:
    content = bytearray(which)
    content[int(position * len(content))] = byte
    path = tmp_path_factory.getbasetemp() / "flipped.onnx"
    path.write_bytes(content)
    try:
        inspect(path)
    except OnnxRefused as refused:
        assert refused.reason.text


def test_missing_side_file(tmp_path: Path) -> None:
    path = graphs.with_side_file(tmp_path, graphs.linear())
    (tmp_path / "weights.data").unlink()
    code, text = refusal(path)
    assert code == "external_data_missing"
    assert "weights.data" in text


def test_side_file_that_ends_early(tmp_path: Path) -> None:
    path = graphs.with_side_file(tmp_path, graphs.linear())
    side = tmp_path / "weights.data"
    side.write_bytes(side.read_bytes()[:-4])
    code, text = refusal(path)
    assert code == "external_data_truncated"
    assert "'b'" in text


def test_side_file_that_is_a_pointer(tmp_path: Path) -> None:
    path = graphs.with_side_file(tmp_path, graphs.linear())
    (tmp_path / "weights.data").write_text(
        "version https://git-lfs.github.com/spec/v1\nsize 60\n" + " " * 100
    )
    assert refusal(path)[0] == "lfs_pointer"


@pytest.mark.parametrize(
    "location",
    ["../secret", "inner/../../secret", "/etc/hostname", "C:\\secret", "..\\secret", "\\\\host\\secret", ""],
)
def test_side_file_outside_the_folder_is_never_opened(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(1000))
    path = graphs.with_side_file(folder, graphs.linear())
    made = onnx.load(path, load_external_data=False)
    for tensor in made.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(made.SerializeToString())
    assert refusal(path)[0] == "external_data_escapes"


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symbolic links here")
def test_side_file_that_links_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = graphs.with_side_file(folder, graphs.linear())
    (folder / "weights.data").rename(tmp_path / "elsewhere")
    (folder / "weights.data").symlink_to(tmp_path / "elsewhere")
    assert refusal(path)[0] == "external_data_escapes"


def test_side_file_of_a_constant_inside_a_branch_is_found_too(tmp_path: Path) -> None:
    made = graphs.if_and_loop()
    branch = next(n for n in made.graph.node if n.op_type == "If").attribute[0].g
    tensor = onnx.numpy_helper.from_array(np.zeros(2, np.float32), "c")
    onnx.external_data_helper.set_external_data(tensor, "gone.data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    branch.initializer.append(tensor)
    assert refusal(graphs.write(tmp_path, made))[0] == "external_data_missing"


def test_shapes_that_contradict_each_other(tmp_path: Path) -> None:
    made = graphs.model(
        [node("MatMul", ["x", "x"], ["y"], name="mm")], [value("x", [2, 3])], [value("y", [2, 3])]
    )
    code, text = refusal(graphs.write(tmp_path, made))
    assert code == "shape_inconsistent"
    assert "mm" in text


def test_an_output_declared_with_another_shape_than_it_has(tmp_path: Path) -> None:
    made = graphs.model([node("Relu", ["x"], ["y"])], [value("x", [1, 4])], [value("y", [1, 5])])
    assert refusal(graphs.write(tmp_path, made))[0] == "shape_inconsistent"


def test_types_that_contradict_each_other(tmp_path: Path) -> None:
    made = graphs.model(
        [node("Add", ["x", "i"], ["y"], name="add")],
        [value("x", [1]), value("i", [1], INT64)],
        [value("y", [1])],
    )
    assert refusal(graphs.write(tmp_path, made))[0] == "shape_inconsistent"


def test_a_shape_that_only_computed_sizes_contradict(tmp_path: Path) -> None:
    made = graphs.model(
        [node("Shape", ["x"], ["size"]), node("ConstantOfShape", ["size"], ["y"], name="fill")],
        [value("x", [2, 3])],
        [value("y", [4, 4])],
    )
    assert refusal(graphs.write(tmp_path, made))[0] == "shape_inconsistent"


def test_a_misspelt_operator_is_named_with_its_node_and_the_likely_word(tmp_path: Path) -> None:
    made = graphs.model([node("Rleu", ["x"], ["y"], name="r")], [value("x", [1])], [value("y", [1])])
    code, text = refusal(graphs.write(tmp_path, made))
    assert code == "unknown_operator"
    assert "'r'" in text
    assert "Rleu" in text
    assert "'Relu'" in text


def test_an_operator_of_a_later_opset_says_from_which(tmp_path: Path) -> None:
    made = graphs.model(
        [node("Gelu", ["x"], ["y"])], [value("x", [1])], [value("y", [1])], opsets={"": 17}, ir_version=8
    )
    code, text = refusal(graphs.write(tmp_path, made))
    assert code == "operator_too_new"
    assert "opset 20" in text
    assert "17" in text


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml"])
def test_an_opset_nobody_has_names_domain_wanted_and_offered(tmp_path: Path, domain: str) -> None:
    made = graphs.relu(opsets={"": 20} | {domain: 99})
    code, text = refusal(graphs.write(tmp_path, made))
    assert code == "opset_too_new"
    assert f"opset 99 of domain {domain or 'ai.onnx'}" in text
    assert "up to" in text


def test_an_ir_version_nobody_has(tmp_path: Path) -> None:
    code, text = refusal(graphs.write(tmp_path, graphs.relu(ir_version=99)))
    assert code == "ir_too_new"
    assert "99" in text
    assert str(int(onnx.IR_VERSION)) in text


def test_a_domain_that_is_not_imported(tmp_path: Path) -> None:
    made = graphs.model(
        [node("Foo", ["x"], ["y"], name="f", domain="acme")], [value("x", [1])], [value("y", [1])]
    )
    code, text = refusal(graphs.write(tmp_path, made))
    assert code == "domain_not_imported"
    assert "'acme'" in text
    assert "'f'" in text


def test_an_input_that_nothing_produces(tmp_path: Path) -> None:
    made = graphs.model([node("Relu", ["z"], ["y"], name="r")], [value("x", [1])], [value("y", [1])])
    code, text = refusal(graphs.write(tmp_path, made))
    assert code == "undefined_input"
    assert "'z'" in text
    assert "'r'" in text


def test_an_output_that_nothing_produces(tmp_path: Path) -> None:
    made = graphs.model([node("Relu", ["x"], ["y"])], [value("x", [1])], [value("yy", [1])])
    code, text = refusal(graphs.write(tmp_path, made))
    assert code == "undefined_output"
    assert "'y'" in text


def test_sequences_cannot_be_compared(tmp_path: Path) -> None:
    sequence = onnx.helper.make_tensor_sequence_value_info("y", FLOAT, None)
    made = graphs.model([node("SequenceConstruct", ["x"], ["y"])], [value("x", [1])], [sequence])
    assert refusal(graphs.write(tmp_path, made))[0] == "not_a_tensor"


def test_a_missing_attribute_is_told_by_the_checker(tmp_path: Path) -> None:
    made = graphs.model([node("Concat", ["x", "x"], ["y"], name="c")], [value("x", [1])], [value("y", [2])])
    code, text = refusal(graphs.write(tmp_path, made))
    assert code == "invalid"
    assert "axis" in text


# --- inputs from the file and from the configuration --------------------------------------


def problems(path: Path, given_entries: dict[str, InputEntry], **kw: int) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve_inputs(inspect(path), given_entries, **({"batch": 1} | kw))
    return caught.value.problems


def test_everything_can_come_from_the_file(tmp_path: Path) -> None:
    facts = inspect(graphs.write(tmp_path, graphs.linear()))
    entry = resolve_inputs(facts, {}, batch=8)["x"]
    assert (entry.dtype, entry.shape, entry.distribution) == ("float32", [8, 4], "normal")


def test_indices_of_a_stored_table_stay_inside_it(tmp_path: Path) -> None:
    facts = inspect(graphs.write(tmp_path, graphs.lookup(rows=10)))
    entry = resolve_inputs(facts, {}, batch=2, sequence=5)["ids"]
    assert (entry.shape, entry.distribution, entry.low, entry.high) == ([2, 5], "integers", 0, 10)


def test_indices_out_of_range_are_an_error_before_any_build(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.lookup(rows=10))
    entry = InputEntry(distribution="integers", low=0, high=11)
    (problem,) = problems(path, {"ids": entry}, sequence=3)
    assert "0..10" in problem
    assert "10 rows" in problem


def test_integers_without_a_range_ask_for_one(tmp_path: Path) -> None:
    made = graphs.model([node("Neg", ["n"], ["y"])], [value("n", [3], INT64)], [value("y", [3], INT64)])
    (problem,) = problems(graphs.write(tmp_path, made), {})
    assert "inputs.n" in problem
    assert "high" in problem


def test_text_is_made_without_being_told(tmp_path: Path) -> None:
    facts = inspect(graphs.write(tmp_path, graphs.text_in_and_out()))
    assert resolve_inputs(facts, {}, batch=3)["words"].shape == [3]


def test_an_unknown_symbol_asks_for_a_shape(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.relu(["batch", "height"]))
    (problem,) = problems(path, {})
    assert "dimension 1 ('height') has no size" in problem
    assert "inputs.x.shape" in problem


def test_a_dimension_without_any_name_asks_for_a_shape(tmp_path: Path) -> None:
    assert "has no size" in problems(graphs.write(tmp_path, graphs.relu([None, 4])), {})[0]


def test_a_symbol_given_for_one_input_holds_for_the_others(tmp_path: Path) -> None:
    made = graphs.model(
        [node("Add", ["a", "b"], ["y"])],
        [value("a", ["batch", "k"]), value("b", ["batch", "k"])],
        [value("y", ["batch", "k"])],
    )
    facts = inspect(graphs.write(tmp_path, made))
    entries = resolve_inputs(facts, {"a": InputEntry(shape=["batch", 7])}, batch=2)
    assert entries["b"].shape == [2, 7]
    both = {"a": InputEntry(shape=["batch", 7]), "b": InputEntry(shape=["batch", 8])}
    with pytest.raises(ConfigError, match="'k' is 8 here and 7"):
        resolve_inputs(facts, both, batch=2)


def test_a_shape_against_the_file_is_an_error(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.linear())
    assert "dimension 1 is 4 in the file, 5" in problems(path, {"x": InputEntry(shape=["batch", 5])})[0]
    assert "3 dimensions given" in problems(path, {"x": InputEntry(shape=["batch", 4, 1])})[0]


def test_a_dtype_against_the_file_is_an_error(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.linear())
    assert "float64 given, the file has float32" in problems(path, {"x": InputEntry(dtype="float64")})[0]


def test_a_mistyped_input_name_gets_a_hint(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.lookup())
    assert "did you mean 'ids'" in problems(path, {"id": InputEntry()}, sequence=2)[0]


def test_several_problems_come_in_one_go(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.relu(["batch", "height"]))
    assert len(problems(path, {"z": InputEntry(), "x": InputEntry(dtype="int64")})) == 3


def test_a_batch_that_the_file_fixes_otherwise_is_an_error(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.relu([1, 4]))
    assert "batch 8" in problems(path, {}, batch=8)[0]
    assert resolve_inputs(inspect(path), {}, batch=1)["x"].shape == [1, 4]


def test_a_dimension_of_zero_is_an_error(tmp_path: Path) -> None:
    assert "dimension 0 is 0" in problems(graphs.write(tmp_path, graphs.relu([0, 4])), {})[0]


def test_an_array_from_a_file_is_checked_against_the_model(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.lookup(rows=10))
    array = tmp_path / "ids.npy"
    np.save(array, np.array([[1, 9]]))
    assert resolve_inputs(inspect(path), {"ids": InputEntry(file=array)}, batch=1)["ids"].shape == [1, 2]
    np.save(array, np.array([[1, 10]]))
    assert "out of range" in problems(path, {"ids": InputEntry(file=array)})[0]
    np.save(array, np.zeros((1, 2)))
    assert "holds float64, the model takes int64" in problems(path, {"ids": InputEntry(file=array)})[0]
    np.save(array, np.zeros(2, np.int64))
    assert "has shape [2]" in problems(path, {"ids": InputEntry(file=array)})[0]


def test_an_array_file_with_pickled_objects_is_never_unpickled(tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.text_in_and_out())
    np.save(tmp_path / "words.npy", np.array(["a", None], object), allow_pickle=True)
    assert "cannot be read" in problems(path, {"words": InputEntry(file=tmp_path / "words.npy")})[0]


def test_outputs_are_all_of_the_files_unless_some_are_named(tmp_path: Path) -> None:
    facts = inspect(graphs.write(tmp_path, graphs.text_in_and_out()))
    assert resolve_outputs(facts, []) == ["joined", "same"]
    assert resolve_outputs(facts, ["same"]) == ["same"]
    with pytest.raises(ConfigError, match="did you mean 'same'"):
        resolve_outputs(facts, ["sane"])


def test_text_inputs_keep_their_type(tmp_path: Path) -> None:
    made = graphs.model(
        [node("Identity", ["t"], ["u"])], [value("t", [2], STRING)], [value("u", [2], STRING)]
    )
    facts = inspect(graphs.write(tmp_path, made))
    assert resolve_inputs(facts, {}, batch=1)["t"].dtype == "string"
