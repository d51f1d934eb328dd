"""TensorFlow through the worker: every model, both variants, what it read back, what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from model_lab import ModelLab

from matrix import catalog
from matrix.catalog.types import ModelEntry
from matrix_adapters import protocol
from matrix_adapters.protocol import State, TaskKind, to_json

pytestmark = pytest.mark.real

MODELS = [
    "resnet50",
    "efficientnet_b0",
    "vit_base",
    "bert_base",
    "distilbert",
    "gpt2",
    "llama_small",
    "lstm",
    "dlrm",
]
IMAGES = {"resnet50", "efficientnet_b0", "vit_base"}


@pytest.fixture(scope="module")
def lab(built: Any, run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> ModelLab:
    return ModelLab(built, run_task, tmp_path_factory.mktemp("lab"))


def tiny(name: str) -> ModelEntry:
    return catalog.load().models[f"{name}_tiny"]


@pytest.mark.parametrize("variant", ["graph", "xla"])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_agrees_with_the_float64_reference(lab: ModelLab, model: str, variant: str) -> None:
    run = lab.run("tensorflow", tiny(model), variant=variant)
    assert run.result.state is State.OK, run.result.reason
    assert run.parity is not None and run.parity.passed, run.parity
    effective = run.result.effective
    assert effective["device"] == "cpu"
    assert effective["precision"] == "fp32"
    assert effective["math_mode"] == "fp32"
    assert effective["threads"] == 1
    assert effective["soft_placement"] is False
    assert effective["xla"] is (variant == "xla")
    assert effective["layout"] == ("NHWC" if model in IMAGES else "as given")
    assert run.result.sampling["synchronous"] is True
    assert run.result.metrics["compile_s"] > 0


@pytest.mark.parametrize("model", ["resnet50", "distilbert", "lstm", "dlrm"])
def test_bfloat16_is_used_widened_and_within_its_own_tolerance(lab: ModelLab, model: str) -> None:
    run = lab.run("tensorflow", tiny(model), precision="bf16")
    assert run.result.state is State.OK, run.result.reason
    assert run.parity is not None and run.parity.passed, run.parity
    # As far from float64 as eight bits are, else it was float32 under another name.
    assert run.parity.max_scaled_error > 1e-4
    effective = run.result.effective
    assert effective["precision"] == "bf16"
    assert effective["weights_dtype"] == effective["output_dtype"] == "bfloat16"
    assert {str(a.dtype) for a in run.outputs.values()} == {"float32"}


def test_cuda_that_tensorflow_does_not_see_is_unavailable_in_its_own_words(lab: ModelLab) -> None:
    run = lab.run("tensorflow", tiny("lstm"), device="cuda")
    assert run.result.state is State.UNAVAILABLE
    assert run.result.reason is not None
    assert "lists no GPU (built with CUDA: False)" in run.result.reason.text
    assert not run.result.metrics


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_read_back_and_one_thread_uses_one_core(lab: ModelLab, threads: int) -> None:
    run = lab.run("tensorflow", tiny("resnet50"), threads=threads)
    assert run.result.effective["threads"] == threads
    assert run.result.effective["threads_between_operators"] == 1
    if threads == 1:  # waiting for a busy core lengthens wall time only
        assert run.result.metrics["cpu_time_ms"] <= 1.3 * run.result.metrics["latency_ms"]


def test_tf32_is_used_only_where_it_is_asked_for(lab: ModelLab) -> None:
    run = lab.run("tensorflow", tiny("lstm"), math_mode="tf32")
    assert run.result.effective["math_mode"] == "tf32"


def test_memory_is_measured_in_a_launch_of_its_own(lab: ModelLab) -> None:
    run = lab.run("tensorflow", tiny("lstm"), kind=TaskKind.MEMORY)
    assert run.result.state is State.OK, run.result.reason
    assert run.result.metrics["peak_memory_bytes"] > 100e6


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"artefacts": {"onnx": "model.onnx"}}, "needs a checkpoint"),
        ({"variant": "eager"}, "no variant 'eager'"),
        ({"precision": "int8"}, "'int8'"),
        ({"device": "tpu"}, "'tpu'"),
    ],
)
def test_what_this_adapter_cannot_do_is_unsupported(
    lab: ModelLab, fields: dict[str, Any], words: str
) -> None:
    result = lab.run("tensorflow", tiny("lstm"), **fields).result
    assert result.state is State.UNSUPPORTED
    assert result.reason is not None and words in result.reason.text


def test_an_architecture_without_a_converter_is_unsupported(lab: ModelLab) -> None:
    with lab.edited(tiny("distilbert"), config={"model_type": "mpnet"}) as folder:
        result = lab.run("tensorflow", tiny("distilbert"), checkpoint=folder).result
    assert result.state is State.UNSUPPORTED
    assert result.reason is not None and "no converter" in result.reason.text


def test_weights_under_names_that_the_converter_does_not_look_for_are_unsupported(lab: ModelLab) -> None:
    entry = tiny("distilbert")
    bare = entry.model_copy(
        update={"name": "bare_distilbert", "build": {**entry.build, "class": "DistilBertModel"}}
    )
    result = lab.run("tensorflow", bare).result
    assert result.state is State.UNSUPPORTED
    assert result.reason is not None and "distilbert.embeddings" in result.reason.text


OFFLINE = """
import json, os, socket, sys
from pathlib import Path

def refuse(*args, **kwargs):
    raise AssertionError(f"a network was asked for: {args}")

socket.socket.connect = socket.getaddrinfo = refuse

from matrix_adapters import tensorflow
from matrix_adapters.protocol import ModelSpec, Task, TaskKind, from_json

os.environ.update(tensorflow.Adapter.environment)
spec = from_json(ModelSpec, sys.argv[1])
adapter = tensorflow.Adapter(Task(kind=TaskKind.MEASURE, framework="tensorflow", adapter="", model=spec))
adapter.start()
runner = adapter.load(spec, {"checkpoint": Path(sys.argv[2])})
import keras
Path(sys.argv[3]).write_text(json.dumps([keras.config.image_data_format(), keras.config.floatx()]))
"""


@pytest.mark.parametrize("model", ["resnet50", "bert_base"])
def test_loading_asks_no_network_and_neither_reads_nor_writes_the_users_keras_settings(
    lab: ModelLab, built: Any, tmp_path: Path, model: str
) -> None:
    shared = lab.artefacts(tiny(model))
    home = tmp_path / "home"
    (home / ".keras").mkdir(parents=True)
    settings = {"floatx": "float16", "image_data_format": "channels_first"}
    (home / ".keras" / "keras.json").write_text(json.dumps(settings))
    answer = tmp_path / "answer.json"
    spec, checkpoint = to_json(tiny(model).spec()), str(shared.paths["checkpoint"])
    adapters = str(Path(protocol.__file__).parents[1])
    subprocess.run(
        [built("tensorflow").python, "-P", "-c", OFFLINE, spec, checkpoint, str(answer)],
        env={**os.environ, "PYTHONPATH": adapters, "HOME": str(home)},
        check=True,
        timeout=120,
    )
    assert json.loads(answer.read_text()) == ["channels_last", "float32"]
    assert [p.name for p in home.rglob("*") if p.is_file()] == ["keras.json"]
    assert json.loads((home / ".keras" / "keras.json").read_text()) == settings
