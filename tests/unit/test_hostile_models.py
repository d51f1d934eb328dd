"""Model folders, ONNX files and arrays from strangers: refused in words, never waited for, never run."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from matrix import catalog
from matrix.artefacts import checkpoint_folder, expected, inputs
from matrix.artefacts.onnx_file import OnnxRefused, inspect, resolve_inputs
from matrix.catalog.types import InputEntry, ModelCost, ModelEntry
from matrix.config.sweep import load_sweep
from matrix.errors import ConfigError

CONFIG = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 10}
WEIGHTS = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}


def safetensors(header: object, body: bytes = b"\0" * 4) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is accepted as it is."""
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (made / "model.safetensors").write_bytes(safetensors(WEIGHTS))
    assert checkpoint_folder.read_config(made) == CONFIG
    return made


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        checkpoint_folder.read_config(folder)
    return str(refused.value)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "not readable JSON"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "not readable JSON"),
        (b'{"text_config": {"auto_map": {"AutoModel": "x.Y"}}}', "auto_map"),
        (b'{"architecture": "resnet18", "model_args": {"checkpoint_path": "x.pth"}}', "checkpoint_path"),
        (b'{"architecture": "hf-hub:somebody/model"}', "from elsewhere"),
        (b'{"registered_name": "x", "module": "os"}', "Keras preset"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_config_that_is_broken_or_leads_elsewhere_is_refused(folder: Path, config: bytes, why: str) -> None:
    (folder / "config.json").write_bytes(config)
    assert why in refusal(folder)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 90_000 + b"]" * 90_000,
        {"a": {"data_offsets": ["0", "4"]}},
        {"a": {"data_offsets": [0, -4]}},
        {"a": {"data_offsets": [0]}},
        {"a": {"data_offsets": [0, 4]}, "b": {"data_offsets": [0, "x"]}},
        b'{"a": {"data_offsets": [0, 1e999]}}',
        b'{"a": {"data_offsets": [0, NaN]}}',
        {"a": None},
        [1],
        {},
    ],
    ids=lambda value: str(value)[:40],
)
def test_weights_whose_header_says_nonsense_are_refused(folder: Path, header: object) -> None:
    (folder / "model.safetensors").write_bytes(safetensors(header))
    assert "broken safetensors header" in (said := refusal(folder)) or "no tensors" in said


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_in_a_model_folder_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert f"{name} is no file" in refusal(folder)


def test_a_link_to_nothing_is_called_so(folder: Path) -> None:
    (folder / "more.safetensors").symlink_to(folder / "gone")
    assert "a link to nothing" in refusal(folder)


@pytest.mark.parametrize(
    "name", ["../other.safetensors", "/etc/passwd", "sub/x.safetensors", "weights.bin", "x" * 5000, "a\0b", 5]
)
def test_an_index_may_name_only_safetensors_beside_it(folder: Path, name: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name, "b": "x"}}))
    assert "index" in refusal(folder)


def test_every_file_that_an_index_names_is_among_the_weights(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model.safetensors", "b": "two.safetensors"}})
    )
    assert "two.safetensors is missing" in refusal(folder)
    (folder / "two.safetensors").write_bytes(safetensors(WEIGHTS))
    names = [path.name for path in checkpoint_folder.weight_files(folder)]
    assert names == ["model.safetensors", "two.safetensors"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        *("architectures", "model_type", "vocab_size", "max_position_embeddings", "n_positions"),
        *("embedding_rows", "dense_features", "input_size", "image_size", "architecture"),
        *("pretrained_cfg", "type_vocab_size"),
    ]
)


@given(st.dictionaries(KEYS, JSON, max_size=5), st.sampled_from([None, "lstm", "dlrm", "bert", "declared"]))
def test_whatever_a_config_holds_it_is_described_with_usable_numbers(
    config: dict[str, Any], kind: str | None
) -> None:
    if kind != "declared":
        config["model_type"] = kind
    known = checkpoint_folder.describe(config)
    for entry in known["inputs"].values():
        assert all(axis in ("batch", "sequence") or 0 < axis < 2**31 for axis in entry["shape"])
        assert 0 < entry.get("high", 1) < 2**31
    assert known.get("max_sequence") is None or 0 < known["max_sequence"] < 2**31


# --- ONNX -----------------------------------------------------------------------------------


def value(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def saved(
    tmp_path: Path, inputs_: list[Any], outputs: list[Any], initializers: list[Any] | None = None
) -> Path:
    node = helper.make_node("Relu", [inputs_[0].name], [outputs[0].name])
    graph = helper.make_graph([node], "g", inputs_, outputs, initializers or [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_an_output_named_twice_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, [value("x", 1)], [value("y", 1), value("y", 1)])
    with pytest.raises(OnnxRefused, match="'y' twice"):
        inspect(path)


def test_a_side_file_with_a_name_too_long_for_any_disk_is_missing(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w" * 5000)
    with pytest.raises(OnnxRefused, match="is missing") as refused:
        inspect(saved(tmp_path, [value("x", 4)], [value("y", 4)], [tensor]))
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("kind", ["empty", "pipe", "pickle"])
def test_an_array_file_that_is_none_is_a_message_without_bad_advice(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.npy"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"" if kind == "empty" else b"\x80\x04K\x01.")
    facts = inspect(saved(tmp_path, [value("x", 1)], [value("y", 1)]))
    with pytest.raises(ConfigError) as refused:
        resolve_inputs(facts, {"x": InputEntry(file=path)}, batch=1)
    assert "x.npy" in str(refused.value) and "allow_pickle" not in str(refused.value)
    model = entry(InputEntry(file=path, dtype="float32", shape=[1]))
    assert inputs.problems(model, 1, None)


# --- generated inputs -----------------------------------------------------------------------


def entry(given_input: InputEntry, **fields: Any) -> ModelEntry:
    return ModelEntry(
        name="m",
        title="m",
        format="onnx",
        task="onnx",
        inputs={"x": given_input},
        outputs=["y"],
        cost=ModelCost(disk_mb=1, make_s=1),
        **fields,
    )


def test_an_input_larger_than_the_machine_is_refused_before_it_is_made() -> None:
    model = entry(InputEntry(shape=["batch", 2**40]))
    (problem,) = inputs.problems(model, 1, None)
    assert "8,192.0 GiB" in problem and "room for" in problem
    with pytest.raises(inputs.InputProblem, match="GiB"):
        inputs.make_inputs(model, 1, None)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"dtype": "int8", "distribution": "integers", "low": 0, "high": 1000}, "int8 holds -128..127"),
        ({"dtype": "uint8", "distribution": "integers", "low": -5, "high": 5}, "uint8 holds 0..255"),
        ({"dtype": "int64", "distribution": "integers", "low": 0, "high": 2**70}, "cannot be made"),
        ({"dtype": "float32", "distribution": "uniform", "low": -1e308, "high": 1e308}, "cannot"),
        ({"dtype": "float16", "distribution": "constant", "low": 1e6}, "float16 cannot hold"),
        ({"dtype": "complex64"}, "cannot be made"),
        ({"dtype": "object"}, "cannot be made"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_values_that_the_type_cannot_hold_are_an_error_never_wrapped(
    fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(inputs.InputProblem, match=why.replace(".", r"\.")):
        inputs.make_inputs(entry(InputEntry(shape=[64], **fields)), 1, None)


def test_names_that_would_be_paths_or_arguments_survive_the_round_trip(tmp_path: Path) -> None:
    names = ["../../x", "/etc/x", "file", "allow_pickle", "a\nb", "\u00e9\u4e2d", "n" * 5000]
    model = entry(InputEntry(shape=[2])).model_copy(
        update={"inputs": {name: InputEntry(shape=[2]) for name in names}}
    )
    made = inputs.make_inputs(model, 1, None)
    inputs.write_inputs(model, made, tmp_path)
    assert sorted(os.listdir(tmp_path)) == [inputs.FACTS_FILE, inputs.INPUTS_FILE]  # noqa: PTH208
    with np.load(tmp_path / inputs.INPUTS_FILE, allow_pickle=False) as stored:
        assert set(stored.files) == set(names)


@pytest.mark.parametrize("node", [("Gather", ["table"], ["y"]), ("Gather", [], ["y"]), ("Cast", ["x"], [])])
def test_a_node_without_the_inputs_or_outputs_it_needs_is_refused(
    tmp_path: Path, node: tuple[str, list[str], list[str]]
) -> None:
    table = helper.make_tensor("table", TensorProto.FLOAT, [4], [0.0] * 4)
    nodes = [helper.make_node(*node), helper.make_node("Relu", ["x"], ["z"])]
    graph = helper.make_graph(nodes, "g", [value("x", 1)], [value("z", 1)], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(OnnxRefused):
        inspect(tmp_path / "model.onnx")


# --- expected outputs -----------------------------------------------------------------------


def test_expected_outputs_are_read_before_anything_is_built(tmp_path: Path) -> None:
    good, other = tmp_path / "good.npz", tmp_path / "other.npz"
    np.savez(good, y=np.ones(3, np.float32), more=np.ones(1))
    np.savez(other, z=np.ones(3, np.float32))
    assert expected.problem(good, ["y"]) == ""
    assert "lacks the output 'y'; it has z" in expected.problem(other, ["y"])
    assert "there is no file" in expected.problem(tmp_path, ["y"])


@pytest.mark.parametrize("content", [b"", b"junk", b"\x80\x04K\x01.", b"PK\x03\x04 cut off"])
def test_expected_outputs_that_are_no_arrays_are_refused_without_bad_advice(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "expected.npz"
    path.write_bytes(content)
    said = expected.problem(path, ["y"])
    assert "is no .npz of plain arrays" in said and "allow_pickle" not in said


def test_expected_outputs_that_are_objects_or_one_array_are_refused(tmp_path: Path) -> None:
    objects, single = tmp_path / "objects.npz", tmp_path / "single.npy"
    np.savez(objects, y=np.array([{"a": 1}], dtype=object))
    np.save(single, np.ones(3))
    assert "no .npz of plain arrays" in expected.problem(objects, ["y"])
    assert "holds one array" in expected.problem(single, ["y"])


def test_a_sweep_with_wrong_expected_outputs_is_refused_in_its_line(tmp_path: Path) -> None:
    saved(tmp_path, [value("x", 1)], [value("y", 1)])
    np.savez(tmp_path / "expected.npz", z=np.ones(1, np.float32))
    model = "- name: m\n  path: model.onnx\n  expected: expected.npz\n"
    text = f"name: x\nframeworks: [onnxruntime]\nmodels:\n{model}"
    (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"sweep\.yaml:6:13: models\[0\]\.expected: .* lacks the output 'y'"
    ):
        load_sweep(tmp_path / "sweep.yaml", catalog.load())
