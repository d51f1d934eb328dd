"""PyTorch through the worker: numbers, what it read back, and what it refuses with which reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_lab import ModelLab

from matrix import catalog
from matrix.catalog.types import ModelEntry
from matrix_adapters.protocol import ModelSpec, Result, State, Task, TaskKind

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def lab(built: Any, run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> ModelLab:
    return ModelLab(built, run_task, tmp_path_factory.mktemp("lab"))


def tiny(name: str) -> ModelEntry:
    return catalog.load().models[f"{name}_tiny"]


@pytest.mark.parametrize("name", sorted(n for n in catalog.load().models if n.endswith("_tiny")))
def test_every_model_agrees_with_float64_and_reports_what_it_used(lab: ModelLab, name: str) -> None:
    run = lab.run("pytorch", catalog.load().models[name])
    assert run.result.state is State.OK, run.result.reason
    assert run.parity is not None and run.parity.passed, run.parity
    effective = run.result.effective
    assert (effective["device"], effective["precision"], effective["math_mode"]) == ("cpu", "fp32", "fp32")
    assert (effective["threads"], effective["interop_threads"]) == (1, 1)
    assert effective["training_mode"] is False
    assert effective["wait_policy"] == "PASSIVE"
    assert "compile_s" in run.result.absent
    assert "non_deterministic" not in {f.code for f in run.result.flags}


@pytest.mark.parametrize("name", ["resnet50", "distilbert", "dlrm"])
def test_bfloat16_weights_are_judged_by_their_own_rule_and_come_back_as_float32(
    lab: ModelLab, name: str
) -> None:
    run = lab.run("pytorch", tiny(name), precision="bf16")
    assert run.result.state is State.OK, run.result.reason
    assert run.parity is not None and run.parity.passed, run.parity
    assert run.parity.max_scaled_error is not None
    assert run.parity.max_scaled_error > 1e-4  # or it was float32 in disguise
    assert run.result.effective["precision"] == "bf16"
    assert run.result.effective["outputs_widened"] is True
    assert all(array.dtype == np.float32 for array in run.outputs.values())


def test_compile_is_a_phase_of_its_own_and_leaves_no_cache_behind(
    lab: ModelLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run = lab.run("pytorch", tiny("dlrm"), variant="compile")
    assert run.result.state is State.OK, run.result.reason
    assert run.parity is not None and run.parity.passed, run.parity
    assert run.result.metrics["compile_s"] > run.result.metrics["first_call_ms"] / 1e3
    assert run.result.effective["compile_cache"] == "none"
    assert not list(tmp_path.glob("matrix-inductor-*"))


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_asked_of_a_cpu_build_is_unavailable_with_what_torch_saw(lab: ModelLab, device: str) -> None:
    result = lab.run("pytorch", tiny("dlrm"), device=device).result
    assert result.state is State.UNAVAILABLE
    assert result.reason is not None
    assert "was built without CUDA" in result.reason.text
    assert result.metrics == {}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"precision": "fp16"}, "fp16 on the CPU"),
        ({"precision": "int8"}, "no precision 'int8'"),
        ({"variant": "jit"}, "no variant 'jit'"),
        ({"device": "tpu"}, "devices cpu, cuda, xpu, npu"),
        ({"math_mode": "tf32"}, "TF32 is a mode of CUDA devices"),
        ({"artefacts": {"onnx": "model.onnx"}}, "checkpoint folders only"),
    ],
)
def test_what_it_cannot_do_is_unsupported_with_the_reason(
    lab: ModelLab, fields: dict[str, Any], says: str
) -> None:
    result = lab.run("pytorch", tiny("dlrm"), **fields).result
    assert result.state is State.UNSUPPORTED
    assert result.reason is not None
    assert says in result.reason.text


# --- folders that are not what they say ---------------------------------------------------------


@pytest.fixture
def load(run_task: Any, tmp_path: Path) -> Any:
    """Open a folder as a model; the result of the launch."""

    def run(folder: Path, spec: ModelSpec) -> Result:
        task = Task(
            kind=TaskKind.MEASURE,
            framework="pytorch",
            adapter="matrix_adapters.pytorch",
            model=spec,
            artefacts={"checkpoint": str(folder)},
        )
        result: Result = run_task("pytorch", task, tmp_path / "out")
        return result

    return run


def test_remote_code_is_refused_before_transformers_sees_the_folder(lab: ModelLab, load: Any) -> None:
    entry = tiny("distilbert")
    with lab.edited(entry, config={"auto_map": {"AutoModel": "model.Evil"}}) as folder:
        (folder / "model.py").write_text("raise SystemExit('code from a model folder was run')")
        result = load(folder, entry.spec())
    assert result.state is State.UNSUPPORTED
    assert "auto_map" in result.reason.text


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_args": {"checkpoint_path": "/tmp/weights.pth"}}, "model_args.checkpoint_path"),
        ({"model_args": {"cache_dir": "/tmp"}}, "model_args.cache_dir"),
        ({"architecture": "hf-hub:somebody/model"}, "hf-hub:somebody/model"),
    ],
)
def test_a_timm_config_that_leads_out_of_its_folder_is_refused(
    lab: ModelLab, load: Any, config: dict[str, Any], named: str
) -> None:
    entry = tiny("resnet50")
    with lab.edited(entry, config=config) as folder:
        result = load(folder, entry.spec())
    assert result.state is State.UNSUPPORTED
    assert named in result.reason.text


def test_pickled_weights_are_refused_and_not_opened(lab: ModelLab, load: Any, tmp_path: Path) -> None:
    entry = tiny("distilbert")
    folder = tmp_path / "pickled"
    folder.mkdir()
    shutil.copy(lab.artefacts(entry).paths["checkpoint"] / "config.json", folder)
    proof = tmp_path / "opened"
    # A pickle that creates a file when it is opened.
    (folder / "pytorch_model.bin").write_bytes(f"cbuiltins\nopen\n(V{proof}\nVw\ntR.".encode())
    result = load(folder, entry.spec())
    assert result.state is State.UNSUPPORTED
    assert "never loaded" in result.reason.text.replace("\n", " ")
    assert not proof.exists()


@pytest.mark.parametrize("name", ["distilbert", "resnet50", "lstm"])
def test_a_checkpoint_that_lacks_a_tensor_is_not_filled_with_random_numbers(
    lab: ModelLab, load: Any, tmp_path: Path, name: str
) -> None:
    entry = tiny(name)
    source = lab.artefacts(entry).paths["checkpoint"]
    folder = tmp_path / "less"
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    wanted = {"distilbert": "out_lin.bias", "resnet50": "bn1.bias", "lstm": "head.bias"}[name]
    lost = _without(source / "model.safetensors", folder / "model.safetensors", wanted)
    result = load(folder, entry.spec())
    assert result.state is State.UNSUPPORTED
    # transformers names it without the prefix of the head that was not asked for
    assert lost.removeprefix("distilbert.") in result.reason.text


def test_an_unknown_task_or_input_is_named(lab: ModelLab, load: Any) -> None:
    entry = tiny("distilbert")
    folder = lab.artefacts(entry).paths["checkpoint"]
    spec = entry.spec()
    names = {f: getattr(spec, f) for f in ("name", "format", "outputs")}
    result = load(folder, ModelSpec(**names, task="depth", inputs=spec.inputs))
    assert (result.state, "'depth'" in result.reason.text) == (State.UNSUPPORTED, True)


def test_an_input_the_model_does_not_take_is_named(lab: ModelLab, load: Any) -> None:
    entry = tiny("distilbert")
    spec = entry.spec()
    names = {f: getattr(spec, f) for f in ("name", "format", "outputs", "task")}
    result = load(
        lab.artefacts(entry).paths["checkpoint"], ModelSpec(**names, inputs=("input_ids", "pixels"))
    )
    assert (result.state, "'pixels'" in result.reason.text) == (State.UNSUPPORTED, True)


def test_evaluation_mode_is_forced_whatever_the_config_says_of_dropout(lab: ModelLab) -> None:
    entry = tiny("distilbert")
    with lab.edited(entry, config={"dropout": 0.5, "attention_dropout": 0.5}) as folder:
        run = lab.run("pytorch", entry, checkpoint=folder)
    assert run.result.state is State.OK, run.result.reason
    assert run.parity is not None and run.parity.passed, run.parity


def _without(source: Path, target: Path, ending: str) -> str:
    """A copy of a safetensors file without the first tensor whose name ends so; its name."""
    data = source.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    lost = next(n for n in sorted(header) if n.endswith(ending))
    del header[lost]
    body, kept = b"", {}
    for name, entry in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])[0]):
        if name == "__metadata__":
            kept[name] = entry
            continue
        begin, end = entry["data_offsets"]
        kept[name] = {**entry, "data_offsets": [len(body), len(body) + end - begin]}
        body += data[8 + length + begin : 8 + length + end]
    text = json.dumps(kept).encode()
    target.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return lost
