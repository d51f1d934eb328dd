"""A user's own model: what its files say, what the user wrote, and what does not fit."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from matrix import catalog
from matrix.artefacts.checkpoint_folder import check_safetensors
from matrix.artefacts.inputs import make_inputs
from matrix.catalog.types import ModelEntry
from matrix.config.sweep import load_sweep, sweep_from_data
from matrix.errors import ConfigError

SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)


def safetensors(path: Path) -> None:
    """One tensor of four floats, written by hand: the format is a length, a JSON header, bytes."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 16)


def checkpoint(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    safetensors(folder / "model.safetensors")
    return folder


BERT = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": 100,
    "type_vocab_size": 2,
    "max_position_embeddings": 64,
}


def sweep(folder: Path, model: str, extra: str = "") -> Path:
    path = folder / "sweep.yaml"
    entry = textwrap.indent(textwrap.dedent(model).strip(), "    ")
    path.write_text(f"name: mine\nframeworks: [onnxruntime]\nmodels:\n  -\n{entry}\n{extra}")
    return path


def loaded(folder: Path, model: str, extra: str = "") -> ModelEntry:
    (entry,) = load_sweep(sweep(folder, model, extra), SHIPPED).models
    return entry


def mistakes(folder: Path, model: str, extra: str = "") -> list[str]:
    path = sweep(folder, model, extra)
    with pytest.raises(ConfigError) as caught:
        load_sweep(path, SHIPPED)
    return [p.replace(str(path), "sweep.yaml").replace(str(folder), "") for p in caught.value.problems]


def linear(
    path: Path, shape: list[int | str | None], *, dtype: int = TensorProto.FLOAT, name: str = "x"
) -> Path:
    """y = relu(x), or a row of a table of ten for whole numbers."""
    given = helper.make_tensor_value_info(name, dtype, shape)
    if dtype == TensorProto.INT64:
        table = helper.make_tensor("table", TensorProto.FLOAT, [10, 4], np.zeros(40, np.float32))
        nodes, weights = [helper.make_node("Gather", ["table", name], ["y"])], [table]
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape, 4])
    else:
        nodes, weights = [helper.make_node("Relu", [name], ["y"])], []
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [given], [out], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return path


# --- checkpoint folders -------------------------------------------------------------------


def test_a_checkpoint_folder_needs_nothing_but_its_path(tmp_path: Path) -> None:
    checkpoint(tmp_path / "bert", BERT)
    entry = loaded(tmp_path, "{name: my_bert, path: bert}", "sequence: [16]\n")
    assert (entry.format, entry.task, entry.outputs) == ("transformers", "backbone", ["last_hidden_state"])
    assert entry.path == tmp_path / "bert"
    assert entry.longest_sequence == 64
    arrays = make_inputs(entry, 2, 16)
    assert list(arrays) == ["input_ids", "attention_mask", "token_type_ids"]
    assert arrays["input_ids"].max() < 100


@pytest.mark.parametrize(
    ("config", "format_", "task", "inputs"),
    [
        ({"architectures": ["LlamaForCausalLM"], "vocab_size": 9}, "transformers", "causal-lm", 2),
        ({"architectures": ["GPT2LMHeadModel"], "vocab_size": 9}, "transformers", "causal-lm", 2),
        ({"architectures": ["ViTForImageClassification"]}, "transformers", "image-classification", 1),
        ({"architecture": "resnet18"}, "timm", "image-classification", 1),
        ({"model_type": "lstm", "input_size": 3}, "declarative", "lstm", 1),
        ({"model_type": "dlrm", "dense_features": 2, "embedding_rows": [5, 4]}, "declarative", "dlrm", 2),
    ],
)
def test_the_config_says_what_kind_of_model_it_is(
    tmp_path: Path, config: dict[str, Any], format_: str, task: str, inputs: int
) -> None:
    checkpoint(tmp_path / "m", config)
    entry = loaded(tmp_path, "{name: m, path: m}")
    assert (entry.format, entry.task, len(entry.inputs)) == (format_, task, inputs)
    assert len(make_inputs(entry, 2, 8)) == inputs


def test_what_the_user_writes_stands(tmp_path: Path) -> None:
    checkpoint(tmp_path / "m", BERT)
    entry = loaded(
        tmp_path,
        """\
        name: m
        path: m
        title: Mine
        seed: 7
        inputs: {input_ids: {low: 5, high: 50}, attention_mask: {padded: 3}}
        tolerance: {limit: 1.0e-3, reason: trained in half precision}
        """,
    )
    assert (entry.title, entry.seed) == ("Mine", 7)
    assert (entry.inputs["input_ids"].low, entry.inputs["input_ids"].high) == (5, 50)
    assert entry.inputs["attention_mask"].padded == 3
    assert entry.tolerance is not None
    assert entry.tolerance.reason == "trained in half precision"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("inputs: {input_idz: {high: 5}}", 'the model has no such input (did you mean "input_ids"?)'),
        ("inputs: {input_ids: {high: 101}}", "generates 0..100, the model has rows 0..99"),
        ("inputs: {input_ids: {low: 9, high: 9}}", "low (9) must be below high (9)"),
        ("inputs: {input_ids: {dtype: int32}}", "the model takes int64"),
        ("inputs: {input_ids: {shape: [batch, 3, 4]}}", "the model takes [batch, sequence]"),
        ("inputs: {input_ids: {file: none.npy}}", "there is no /none.npy"),
        ("inputs: {input_ids: {distribution: gaussian}}", "gaussian is not one of normal, uniform"),
        ("inputs: {input_ids: {hihg: 4}}", 'unknown key (did you mean "high"?)'),
        ("tolerance: {limit: 0.1}", "`reason` is missing"),
        ("tolerance: {limit: 0.1, reason: ''}", "text is needed"),
        ("tolerance: {limit: 0, reason: x}", "more than 0 is needed"),
        ("expected: out.npz", "there is no /out.npz"),
        ("format: timm", "the model's format is transformers"),
        ("task: chat", "chat is not one of"),
        ("hub: org/name", "give either `path` or `hub`"),
    ],
)
def test_what_does_not_fit_the_checkpoint_is_located(tmp_path: Path, fields: str, says: str) -> None:
    checkpoint(tmp_path / "m", BERT)
    (message,) = mistakes(tmp_path, f"name: m\npath: m\n{fields}", "sequence: [16]\n")
    assert message.startswith("sweep.yaml:")
    assert "models[0]" in message
    assert says in message


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("{name: m}", "give either `path` or `hub`"),
        ("{name: m, path: nowhere}", "there is no /nowhere"),
        ("{name: gpt2, path: m}", "the catalog has a model 'gpt2'"),
        ("{name: a b, path: m}", "letters, digits"),
        ("{name: m, hub: org/name}", "a hub model needs `task`, `inputs` and `outputs`"),
    ],
)
def test_a_model_needs_a_name_and_one_source(tmp_path: Path, model: str, says: str) -> None:
    checkpoint(tmp_path / "m", BERT)
    assert says in "\n".join(mistakes(tmp_path, model))


def test_a_hub_model_says_what_no_file_can_say_yet(tmp_path: Path) -> None:
    text = """\
        name: m
        hub: org/name
        task: causal-lm
        inputs: {input_ids: {dtype: int64, shape: [batch, sequence], high: 50}}
        outputs: [logits]
        """
    entry = loaded(tmp_path, text)
    assert (entry.hub, entry.path, entry.format) == ("org/name", None, "transformers")
    assert entry.inputs["input_ids"].distribution == "integers"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "not readable JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "does not hold a mapping"),
        (
            lambda f: (f / "config.json").write_text('{"auto_map": {}}'),
            "code from a model folder is never run",
        ),
        (lambda f: (f / "model.safetensors").rename(f / "model.bin"), "pickled weights are never loaded"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), "is empty"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 20), "truncated or no safetensors"),
        (
            lambda f: (f / "model.safetensors").write_text(
                "version https://git-lfs.github.com/spec/v1\noid x"
            ),
            "is a Git LFS pointer, not the weights: run `git lfs pull`",
        ),
        (
            lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-1]),
            "is truncated: ",
        ),
        (
            lambda f: (f / "model.safetensors.index.json").write_text(
                '{"weight_map": {"w": "two.safetensors"}}'
            ),
            "two.safetensors is missing, though the index names it",
        ),
    ],
)
def test_a_broken_checkpoint_is_refused_before_anything_is_built(
    tmp_path: Path, spoil: Any, says: str
) -> None:
    spoil(checkpoint(tmp_path / "m", BERT))
    (message,) = mistakes(tmp_path, "{name: m, path: m}")
    assert message.startswith("sweep.yaml:5:")
    assert "models[0].path: " in message
    assert says in message


def test_whole_weights_pass(tmp_path: Path) -> None:
    safetensors(tmp_path / "w.safetensors")
    check_safetensors(tmp_path / "w.safetensors")


def test_indices_in_a_file_are_checked_against_the_vocabulary(tmp_path: Path) -> None:
    checkpoint(tmp_path / "m", BERT)
    ids = np.zeros((1, 16), np.int64)
    np.save(tmp_path / "ids.npy", ids)
    model = "name: m\npath: m\ninputs: {input_ids: {file: ids.npy}}"
    assert loaded(tmp_path, model, "sequence: [16]\n").inputs["input_ids"].file == tmp_path / "ids.npy"
    ids[0, 3] = 100
    np.save(tmp_path / "ids.npy", ids)
    (message,) = mistakes(tmp_path, model, "sequence: [16]\n")
    assert "holds 100, values must stay below 100" in message


# --- ONNX files ---------------------------------------------------------------------------


def test_an_onnx_file_needs_nothing_but_its_path(tmp_path: Path) -> None:
    linear(tmp_path / "m.onnx", ["batch", 3])
    entry = loaded(tmp_path, "{name: m, path: m.onnx}", "batch: [1, 4]\n")
    assert (entry.format, entry.task, entry.outputs) == ("onnx", "onnx", ["y"])
    assert entry.inputs["x"].shape == ["batch", 3]
    assert make_inputs(entry, 4, None)["x"].shape == (4, 3)


def test_other_names_of_the_batch_and_sequence_axes_are_known(tmp_path: Path) -> None:
    linear(tmp_path / "m.onnx", ["N", "seq_len"], dtype=TensorProto.INT64)
    entry = loaded(tmp_path, "{name: m, path: m.onnx}", "sequence: [8]\n")
    assert entry.inputs["x"].shape == ["batch", "sequence"]
    assert (entry.inputs["x"].distribution, entry.inputs["x"].high) == ("integers", 10)
    assert entry.has_sequence


def test_a_fixed_batch_is_kept_and_planned_as_such(tmp_path: Path) -> None:
    linear(tmp_path / "m.onnx", [2, 3])
    entry = loaded(tmp_path, "{name: m, path: m.onnx}", "batch: [1, 2]\n")
    assert entry.batch == 2
    assert make_inputs(entry, 2, None)["x"].shape == (2, 3)


def test_a_range_without_a_distribution_means_the_one_that_fits_the_type(tmp_path: Path) -> None:
    linear(tmp_path / "m.onnx", ["batch", 3])
    entry = loaded(tmp_path, "name: m\npath: m.onnx\ninputs: {x: {low: 0.5, high: 2}}")
    assert entry.inputs["x"].distribution == "uniform"


@pytest.mark.parametrize(
    ("shape", "fields", "says"),
    [
        (["batch", "width"], "", "dimension 1 ('width') has no size"),
        (["batch", 3], "inputs: {z: {low: 0, high: 1}}", "inputs.z: the file has no such input"),
        (["batch", 3], "inputs: {x: {shape: [batch, 4]}}", "dimension 1 is 3 in the file, 4 is asked"),
        (["batch", 3], "inputs: {x: {dtype: float64}}", "float64 given, the file has float32"),
        (["batch", 3], "outputs: [z]", "no output 'z'"),
        (["batch", 3], "format: timm", "the model's format is onnx"),
    ],
)
def test_what_does_not_fit_the_onnx_file_is_located(
    tmp_path: Path, shape: list[int | str | None], fields: str, says: str
) -> None:
    linear(tmp_path / "m.onnx", shape)
    messages = mistakes(tmp_path, f"name: m\npath: m.onnx\n{fields}")
    assert len(messages) == 1
    assert messages[0].startswith("sweep.yaml:")
    assert says in messages[0]


def test_all_open_questions_of_an_onnx_file_are_asked_at_once(tmp_path: Path) -> None:
    linear(tmp_path / "m.onnx", ["batch", "width"])
    messages = mistakes(tmp_path, "name: m\npath: m.onnx\ninputs: {z: {low: 0, high: 1}}\noutputs: [q]")
    assert len(messages) == 3


@pytest.mark.parametrize(
    "content",
    [b"", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", b"not a model" * 9],
)
def test_a_broken_onnx_file_is_refused_before_anything_is_built(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    (message,) = mistakes(tmp_path, "{name: m, path: m.onnx}")
    assert message.startswith("sweep.yaml:5:")
    assert "models[0].path: " in message


def test_a_sweep_with_own_models_can_be_stored_and_resumed_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path / "m", BERT)
    linear(tmp_path / "o.onnx", ["batch", 3])
    np.save(tmp_path / "x.npy", np.zeros((1, 3), np.float32))
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "name: mine\nframeworks: [onnxruntime]\nsequence: [16]\nmodels:\n"
        "  - {name: m, path: m}\n  - {name: o, path: ./o.onnx, inputs: {x: {file: x.npy}}}\n  - lstm_tiny\n"
    )
    config = load_sweep(path, SHIPPED)
    stored = json.loads(json.dumps(config.data))
    monkeypatch.chdir("/")
    assert sweep_from_data(stored, SHIPPED, "run.json").models == config.models
