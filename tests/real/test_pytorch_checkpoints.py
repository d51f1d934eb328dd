"""Checkpoint, export and reference made by the real PyTorch environment."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_lab import ModelLab

from matrix import catalog
from matrix.artefacts import inputs
from matrix.artefacts.content_cache import read_contents
from matrix.catalog.types import ModelEntry
from matrix.judge.parity import load_arrays
from matrix_adapters.protocol import ModelSpec, State, Task, TaskKind, file_hash

pytestmark = pytest.mark.real

MODELS = sorted(name for name in catalog.load().models if name.endswith("_tiny"))


@pytest.fixture(scope="module")
def lab(built: Any, run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> ModelLab:
    return ModelLab(built, run_task, tmp_path_factory.mktemp("lab"))


def model(name: str) -> ModelEntry:
    return catalog.load().models[name]


def task(kind: TaskKind, spec: ModelSpec, **more: Any) -> Task:
    return Task(kind=kind, framework="pytorch", adapter="matrix_adapters.pytorch", model=spec, **more)


@pytest.mark.parametrize("name", MODELS)
def test_every_tiny_model_is_well_conditioned_and_repeats(lab: ModelLab, name: str) -> None:
    made = lab.artefacts(model(name))
    assert made.facts["reference"]["floor"] < catalog.load().tolerances.ill_conditioned_floor
    assert made.facts["reference"]["repeats"] is True
    weights = made.facts["weights"]
    assert (weights["nan"], weights["inf"], weights["subnormal"]) == (0, 0, 0)
    reference = load_arrays(made.paths["reference"] / "float64.npz")
    for array in reference.values():
        assert array.dtype == np.float64
        assert array.size == 1 or np.std(array) > 0


@pytest.mark.parametrize("name", MODELS)
def test_no_parameter_is_left_at_a_value_whose_loss_nobody_would_see(lab: ModelLab, name: str) -> None:
    tensors = _safetensors(lab.artefacts(model(name)).paths["checkpoint"] / "model.safetensors")
    dull = [
        n for n, array in tensors.items() if array.size > 1 and array.dtype.kind == "f" and not np.std(array)
    ]
    assert dull == []


@pytest.mark.parametrize("name", ["distilbert_tiny", "efficientnet_b0_tiny", "dlrm_tiny"])
def test_made_twice_a_checkpoint_and_its_export_have_the_same_bytes(
    run_task: Any, tmp_path: Path, name: str
) -> None:
    entry = model(name)
    inputs.write_inputs(entry, inputs.make_inputs(entry, 1, entry.sequence), tmp_path)
    made = []
    for n in range(2):
        folder, exported = tmp_path / f"checkpoint{n}", tmp_path / f"onnx{n}"
        result = run_task("pytorch", task(TaskKind.CHECKPOINT, entry.spec()), folder)
        assert result.state is State.OK, result.reason
        manifest = json.loads((folder / "manifest.json").read_text())
        assert {n: file_hash(folder / n) for n in manifest["files"]} == {
            n: f["sha256"] for n, f in manifest["files"].items()
        }
        export = task(
            TaskKind.EXPORT,
            entry.spec(),
            artefacts={"checkpoint": str(folder)},
            inputs=str(tmp_path / inputs.INPUTS_FILE),
            options={"axes": {n: e.shape for n, e in entry.inputs.items()}},
        )
        result = run_task("pytorch", export, exported)
        assert result.state is State.OK, result.reason
        made.append(
            (manifest["files"], (folder / "manifest.json").read_bytes(), file_hash(exported / "model.onnx"))
        )
    assert made[0] == made[1]


def test_the_seed_and_the_config_are_what_a_checkpoint_is_made_from(lab: ModelLab) -> None:
    entry = model("dlrm_tiny")
    other = entry.model_copy(update={"seed": 1})
    first, second = lab.artefacts(entry), lab.artefacts(other)
    assert first.hashes["weights"] != second.hashes["weights"]
    assert first.hashes["config"] == second.hashes["config"]


def test_the_export_is_pinned_and_keeps_its_axes_open(lab: ModelLab) -> None:
    for name in ("distilbert_tiny", "resnet50_tiny"):
        entry = model(name)
        made = lab.artefacts(entry, {"onnx"})
        proto = onnx.load(made.paths["onnx"])
        assert (proto.ir_version, {o.version for o in proto.opset_import if not o.domain}) == (10, {20})
        assert [i.name for i in proto.graph.input] == list(entry.inputs)
        assert [o.name for o in proto.graph.output] == entry.outputs
        for value in proto.graph.input:
            dims = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
            assert dims == entry.inputs[value.name].shape
        assert not [p.key for n in proto.graph.node for p in n.metadata_props if "stack_trace" in p.key]


def test_an_export_without_open_axes_says_that_it_serves_one_shape(
    lab: ModelLab, run_task: Any, tmp_path: Path
) -> None:
    made = lab.artefacts(model("dlrm_tiny"))
    export = task(
        TaskKind.EXPORT,
        made.spec,
        artefacts={"checkpoint": str(made.paths["checkpoint"])},
        inputs=str(made.paths["inputs"]),
    )
    result = run_task("pytorch", export, tmp_path / "onnx")
    assert result.artefacts["dynamic"] is False
    dims = onnx.load(tmp_path / "onnx" / "model.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in dims] == [1, 13]


def test_given_outputs_take_the_place_of_the_float64_run(lab: ModelLab, tmp_path: Path) -> None:
    expected = tmp_path / "expected.npz"
    np.savez(expected, logits=np.array([[2.0]]))
    made = lab.artefacts(model("dlrm_tiny").model_copy(update={"expected": expected}))
    assert load_arrays(made.paths["reference"] / "float64.npz")["logits"].tolist() == [[2.0]]
    assert json.loads((made.paths["reference"] / "reference.json").read_text())["given"]


def test_what_the_store_keeps_describes_every_file(lab: ModelLab) -> None:
    folder = lab.artefacts(model("dlrm_tiny")).paths["checkpoint"]
    contents = read_contents(folder)
    assert contents is not None
    assert {p.name for p in folder.iterdir()} == {*contents["files"], "contents.json"}


# --- a hub ------------------------------------------------------------------------------------


def test_without_a_hub_a_hub_model_is_unavailable(
    run_task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    spec = ModelSpec(name="x", format="transformers", task="backbone", build={"hub": "org/name"})
    result = run_task("pytorch", task(TaskKind.CHECKPOINT, spec), tmp_path / "out")
    assert result.state is State.UNAVAILABLE
    assert result.reason.text.startswith("hub not reachable")


@pytest.fixture
def hub(lab: ModelLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub of one model, `org/name`, with a pickle beside its safetensors; its address."""
    folder = lab.artefacts(model("distilbert_tiny")).paths["checkpoint"]
    files = {n: (folder / n).read_bytes() for n in ("config.json", "model.safetensors")}
    files["pytorch_model.bin"] = b"never ask for this"
    commit = "c" * 40

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path.startswith("/api/models/org/name/tree/"):
                tree = [{"type": "file", "path": n, "size": len(b), "oid": n} for n, b in files.items()]
                self._send(json.dumps(tree).encode(), "application/json")
            elif path.startswith("/api/models/org/name"):
                body = {"id": "org/name", "sha": commit, "siblings": [{"rfilename": n} for n in files]}
                self._send(json.dumps(body).encode(), "application/json")
            elif path.startswith(f"/org/name/resolve/{commit}/") and path.rpartition("/")[2] in files:
                name = path.rpartition("/")[2]
                assert not name.endswith(".bin")
                self._send(files[name], "application/octet-stream", etag=f'"{name}"')
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _send(self, body: bytes, kind: str, etag: str = '"x"') -> None:
            self.send_response(200)
            for key, value in {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "ETag": etag,
                "X-Repo-Commit": commit,
            }.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield address
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_hub_s_model_is_fetched_without_its_pickles_and_pinned_to_a_commit(
    hub: str, run_task: Any, tmp_path: Path
) -> None:
    spec = ModelSpec(name="x", format="transformers", task="backbone", build={"hub": "org/name"})
    result = run_task("pytorch", task(TaskKind.CHECKPOINT, spec), tmp_path / "out")
    assert result.state is State.OK, result.reason
    assert {"config.json", "model.safetensors", "hub.json"} == set(result.artefacts["files"])
    assert json.loads((tmp_path / "out" / "hub.json").read_text()) == {"commit": "c" * 40, "hub": "org/name"}


def test_a_model_that_the_hub_does_not_know_is_no_network_problem(
    hub: str, run_task: Any, tmp_path: Path
) -> None:
    spec = ModelSpec(name="x", format="transformers", task="backbone", build={"hub": "org/absent"})
    result = run_task("pytorch", task(TaskKind.CHECKPOINT, spec), tmp_path / "out")
    assert result.state is State.UNSUPPORTED
    assert "org/absent" in result.reason.text


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    """Read without any library: the format is a JSON header and raw bytes."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    dtypes = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], dtypes[entry["dtype"]])
    return tensors
