"""The artefact store with a fake worker: made once, found again, never used half-made or broken."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import matrix_adapters
from matrix.artefacts.content_cache import ContentCache
from matrix.artefacts.store import ArtefactFailed, ArtefactStore
from matrix.catalog.types import ModelEntry
from matrix.errors import StorageError
from matrix.records import Workload
from matrix_adapters.protocol import LOG_FILE, Reason, Result, State, Task, TaskKind, file_hash


class FakeWorker:
    """Does what the PyTorch environment would, without it; counts what it was asked."""

    def __init__(self, *, dynamic: bool = True, fail: TaskKind | None = None, slow_s: float = 0) -> None:
        self.tasks: list[Task] = []
        self.dynamic, self.fail, self.slow_s = dynamic, fail, slow_s

    @property
    def kinds(self) -> list[str]:
        return [task.kind.value for task in self.tasks]

    def __call__(self, task: Task, out_dir: Path) -> Result:
        self.tasks.append(task)
        time.sleep(self.slow_s)
        (out_dir / LOG_FILE).write_text("chatter")
        if task.kind is self.fail:
            (out_dir / "half").write_text("half")
            return Result(state=State.OOM, reason=Reason(code="oom", text="out of memory"))
        return Result(state=State.OK, artefacts=getattr(self, f"_{task.kind.value}")(task, out_dir))

    def _checkpoint(self, task: Task, out_dir: Path) -> dict[str, Any]:
        assert task.model is not None
        (out_dir / "config.json").write_text(json.dumps(task.model.build.get("config", {})))
        (out_dir / "model.safetensors").write_bytes(f"weights {task.model.seed}".encode())
        files = {p.name: {"sha256": file_hash(p), "bytes": p.stat().st_size} for p in out_dir.glob("*.*")}
        files.pop(LOG_FILE)
        return {"files": files, "weights": {"parameters": 3}, "versions": {"torch": "0"}}

    def _export(self, task: Task, out_dir: Path) -> dict[str, Any]:
        path = out_dir / "model.onnx"
        path.write_bytes(Path(task.artefacts["checkpoint"], "model.safetensors").read_bytes() + b" onnx")
        return {"dynamic": self.dynamic, "files": {"model.onnx": {"sha256": file_hash(path), "bytes": 1}}}

    def _reference(self, task: Task, out_dir: Path) -> dict[str, Any]:
        assert task.inputs is not None
        np.savez(out_dir / "float64.npz", logits=np.load(task.inputs)["x"].astype(np.float64))
        return {"floor": 1e-7}


def entry(**changes: Any) -> ModelEntry:
    fields: dict[str, Any] = {
        "name": "toy",
        "format": "declarative",
        "task": "lstm",
        "build": {"config": {"model_type": "lstm"}},
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "outputs": ["logits"],
    }
    return ModelEntry.model_validate({**fields, **changes})


def workload(batch: int = 1, sequence: int | None = None) -> Workload:
    return Workload(
        level="inference",
        subject="toy",
        batch=batch,
        sequence=sequence,
        precision="fp32",
        threads=1,
        variant="",
    )


def test_everything_is_made_once_and_found_again_by_a_new_store(tmp_path: Path) -> None:
    worker = FakeWorker()
    first = ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint", "onnx"}, worker)
    assert worker.kinds == ["checkpoint", "reference", "export"]
    again = ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint", "onnx"}, worker)
    assert worker.kinds == ["checkpoint", "reference", "export"]
    assert again == first
    assert {"checkpoint", "onnx", "inputs", "reference"} <= first.paths.keys()
    assert all(path.exists() for path in first.paths.values())
    assert first.hashes["weights"] == file_hash(first.paths["checkpoint"] / "model.safetensors")
    assert first.hashes["onnx"] == file_hash(first.paths["onnx"])


def test_a_framework_that_loads_checkpoints_costs_no_export(tmp_path: Path) -> None:
    worker = FakeWorker()
    made = ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint"}, worker)
    assert "export" not in worker.kinds
    assert "onnx" not in made.paths


def test_another_batch_shares_weights_and_export_but_not_inputs_and_reference(tmp_path: Path) -> None:
    worker = FakeWorker()
    store = ArtefactStore(tmp_path)
    one = store.prepare(entry(), workload(1), {"onnx"}, worker)
    two = store.prepare(entry(), workload(2), {"onnx"}, worker)
    assert worker.kinds.count("checkpoint") == worker.kinds.count("export") == 1
    assert worker.kinds.count("reference") == 2
    assert one.paths["onnx"] == two.paths["onnx"]
    assert one.hashes["inputs"] != two.hashes["inputs"]


def test_an_export_that_had_to_fix_its_shapes_is_made_for_each_of_them(tmp_path: Path) -> None:
    worker = FakeWorker(dynamic=False)
    store = ArtefactStore(tmp_path)
    one = store.prepare(entry(), workload(1), {"onnx"}, worker)
    two = store.prepare(entry(), workload(2), {"onnx"}, worker)
    assert worker.kinds.count("export") == 2
    assert one.paths["onnx"] != two.paths["onnx"]
    assert store.prepare(entry(), workload(1), {"onnx"}, worker).paths == one.paths
    assert worker.kinds.count("export") == 2


@pytest.mark.parametrize(
    "changed",
    [
        lambda tmp: (ArtefactStore(tmp), entry(seed=1)),
        lambda tmp: (ArtefactStore(tmp), entry(build={"config": {"model_type": "lstm", "hidden_size": 2}})),
        lambda tmp: (ArtefactStore(tmp, "other pins"), entry()),
    ],
    ids=["seed", "config", "environment"],
)
def test_other_weights_are_asked_for_when_what_they_are_made_from_changes(
    tmp_path: Path, changed: Callable[[Path], tuple[ArtefactStore, ModelEntry]]
) -> None:
    worker = FakeWorker()
    before = ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint"}, worker)
    store, model = changed(tmp_path)
    after = store.prepare(model, workload(), {"checkpoint"}, worker)
    assert worker.kinds.count("checkpoint") == 2
    assert before.paths["checkpoint"] != after.paths["checkpoint"]


@pytest.mark.parametrize(
    ("source", "made_anew"),
    [
        ("checkpoints.py", ["checkpoint"]),  # the same weights again, so that all else is found
        ("reference.py", ["reference"]),
        ("tensors.py", ["reference"]),  # how arrays are written: what is hashed is the file
        ("clock.py", []),
    ],
)
def test_a_change_in_what_makes_an_artefact_makes_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, made_anew: list[str]
) -> None:
    worker = FakeWorker()
    ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint"}, worker)
    worker.tasks.clear()
    changed = tmp_path / "changed"
    shutil.copytree(matrix_adapters.__path__[0], changed)
    with (changed / source).open("a") as file:
        file.write("# other\n")
    monkeypatch.setattr(matrix_adapters, "__path__", [str(changed)])
    ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint"}, worker)
    assert worker.kinds == made_anew


def test_a_failed_task_gives_its_state_and_reason_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ArtefactFailed) as caught:
        ArtefactStore(tmp_path).prepare(entry(), workload(), {"onnx"}, FakeWorker(fail=TaskKind.EXPORT))
    assert caught.value.state is State.OOM
    assert caught.value.reason == Reason(code="oom", text="export: out of memory")
    assert not list((tmp_path / "artefacts").rglob("half"))
    worker = FakeWorker()
    ArtefactStore(tmp_path).prepare(entry(), workload(), {"onnx"}, worker)
    assert worker.kinds == ["export"]  # what had succeeded was kept


def test_a_model_that_nothing_can_evaluate_is_prepared_without_a_reference(tmp_path: Path) -> None:
    class NoReference(FakeWorker):
        def __call__(self, task: Task, out_dir: Path) -> Result:
            if task.kind is TaskKind.REFERENCE:
                reason = Reason(code="no_reference", text="no definition of acme.Op: give its outputs")
                return Result(state=State.UNSUPPORTED, reason=reason)
            return super().__call__(task, out_dir)

    made = ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint"}, NoReference())
    assert "reference" not in made.paths and "reference" not in made.hashes
    assert "acme.Op" in made.facts["reference"]["missing"]


@pytest.mark.parametrize("harm", ["truncated", "changed", "deleted", "undescribed"])
def test_a_broken_checkpoint_is_made_again(tmp_path: Path, harm: str) -> None:
    worker = FakeWorker()
    made = ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint"}, worker)
    weights = made.paths["checkpoint"] / "model.safetensors"
    good = weights.read_bytes()
    match harm:
        case "truncated":
            weights.write_bytes(good[:-1])
        case "changed":
            weights.write_bytes(good[:-1] + b"?")
        case "deleted":
            weights.unlink()
        case "undescribed":
            (made.paths["checkpoint"] / "contents.json").write_text("{")
    ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint"}, worker)
    assert worker.kinds.count("checkpoint") == 2
    assert weights.read_bytes() == good


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"files": 5, "facts": {}}',
        '{"files": {}, "facts": []}',
        '{"files": {"made": 5}, "facts": {}}',
        '{"files": {"made": {"bytes": "4", "sha256": 1}}, "facts": {}}',
        '{"files": {"../outside": {"bytes": 1, "sha256": "x"}}, "facts": {}}',
    ],
    ids=lambda text: text[:40],
)
def test_a_folder_whose_description_says_nonsense_is_made_again(tmp_path: Path, text: str) -> None:
    def make(folder: Path) -> tuple[int, dict[str, Any]]:
        (folder / "made").write_text("anew")
        return 0, {}

    folder = ContentCache(tmp_path).get_or_make("kind", "name", ["key"], make)
    (folder / "contents.json").write_text(text)
    (folder / "made").write_text("old!")
    again = ContentCache(tmp_path).get_or_make("kind", "name", ["key"], make)
    assert again == folder
    assert (folder / "made").read_text() == "anew"


def test_the_worker_s_own_files_do_not_become_part_of_an_artefact(tmp_path: Path) -> None:
    made = ArtefactStore(tmp_path).prepare(entry(), workload(), {"checkpoint"}, FakeWorker())
    names = {p.name for p in made.paths["checkpoint"].iterdir()}
    assert names == {"config.json", "model.safetensors", "contents.json"}


def test_two_threads_make_one_checkpoint(tmp_path: Path) -> None:
    worker, store, made = FakeWorker(slow_s=0.05), ArtefactStore(tmp_path), []
    threads = [
        threading.Thread(
            target=lambda: made.append(store.prepare(entry(), workload(), {"checkpoint"}, worker))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worker.kinds.count("checkpoint") == 1
    assert made == [made[0]] * 4


def _make_in_another_process(root: Path, results: Any) -> None:
    def make(folder: Path) -> tuple[int, dict[str, Any]]:
        results.put("made")
        time.sleep(0.2)
        (folder / "file").write_text("x")
        return 0, {}

    ContentCache(root).get_or_make("kind", "name", ["key"], make)


def test_two_processes_make_one_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    both = [context.Process(target=_make_in_another_process, args=(tmp_path, results)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert results.get(timeout=10) == "made"
    assert results.empty()


def test_what_a_killed_process_left_is_swept_away_and_not_used(tmp_path: Path) -> None:
    left = tmp_path / "kind" / ".name-key.making-dead"
    left.mkdir(parents=True)
    (left / "file").write_text("half")

    def make(folder: Path) -> tuple[int, dict[str, Any]]:
        (folder / "file").write_text("whole")
        return 0, {"n": 1}

    folder = ContentCache(tmp_path).get_or_make("kind", "name", ["key"], make)
    assert (folder / "file").read_text() == "whole"
    assert not left.exists()


def test_a_full_disk_says_where_and_what_to_do(tmp_path: Path) -> None:
    def make(folder: Path) -> tuple[int, dict[str, Any]]:
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="FRAMEWORK_MATRIX_HOME"):
        ContentCache(tmp_path).get_or_make("kind", "name", ["key"], make)
    assert not list((tmp_path / "kind").glob("*making*"))


def test_expected_outputs_of_the_user_reach_the_reference_task_and_its_key(tmp_path: Path) -> None:
    worker, store = FakeWorker(), ArtefactStore(tmp_path)
    expected = tmp_path / "expected.npz"
    np.savez(expected, logits=np.ones(4))
    plain = store.prepare(entry(), workload(), {"checkpoint"}, worker)
    given = store.prepare(entry(expected=expected), workload(), {"checkpoint"}, worker)
    assert worker.tasks[-1].artefacts["expected"] == str(expected)
    assert given.paths["reference"] != plain.paths["reference"]
    with pytest.raises(ArtefactFailed, match="no file of expected outputs"):
        store.prepare(entry(expected=tmp_path / "absent.npz"), workload(), {"checkpoint"}, worker)


# --- a user's own model ---------------------------------------------------------------------


def safetensors(path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


def test_a_user_s_folder_is_used_where_it_lies_and_hashed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_text('{"model_type": "lstm"}')
    safetensors(mine / "model.safetensors")
    worker = FakeWorker()
    made = ArtefactStore(tmp_path).prepare(entry(path=mine), workload(), {"checkpoint"}, worker)
    assert made.paths["checkpoint"] == mine
    assert worker.kinds == ["reference"]
    assert made.hashes["weights"] == file_hash(mine / "model.safetensors")


def test_another_epsilon_in_a_user_s_config_is_another_model(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    safetensors(mine / "model.safetensors")
    references = set()
    for epsilon in ("1e-5", "1e-6"):
        (mine / "config.json").write_text(f'{{"eps": {epsilon}}}')
        made = ArtefactStore(tmp_path).prepare(entry(path=mine), workload(), {"checkpoint"}, FakeWorker())
        references.add(made.paths["reference"])
    assert len(references) == 2


def test_a_user_s_folder_with_remote_code_or_pickles_runs_no_task(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_text('{"auto_map": {"AutoModel": "evil.Model"}}')
    safetensors(mine / "model.safetensors")
    worker = FakeWorker()
    with pytest.raises(ArtefactFailed, match="auto_map") as caught:
        ArtefactStore(tmp_path).prepare(entry(path=mine), workload(), {"checkpoint"}, worker)
    assert caught.value.reason.code == "model_refused"
    (mine / "config.json").write_text("{}")
    (mine / "model.safetensors").rename(mine / "pytorch_model.bin")
    with pytest.raises(ArtefactFailed, match="never loaded"):
        ArtefactStore(tmp_path).prepare(entry(path=mine), workload(), {"checkpoint"}, worker)
    assert worker.kinds == []


def test_a_bare_onnx_file_is_unsupported_where_a_checkpoint_is_needed(tmp_path: Path) -> None:
    model = entry(format="onnx", task="onnx", path=tmp_path / "m.onnx")
    with pytest.raises(ArtefactFailed, match="bare ONNX file") as caught:
        ArtefactStore(tmp_path).prepare(model, workload(), {"checkpoint"}, FakeWorker())
    assert caught.value.state is State.UNSUPPORTED


def test_a_hub_id_goes_to_the_worker_and_an_unreachable_hub_is_unavailable(tmp_path: Path) -> None:
    class NoHub(FakeWorker):
        def _checkpoint(self, task: Task, out_dir: Path) -> dict[str, Any]:
            raise AssertionError

        def __call__(self, task: Task, out_dir: Path) -> Result:
            self.tasks.append(task)
            return Result(
                state=State.UNAVAILABLE, reason=Reason(code="unavailable", text="hub not reachable (...)")
            )

    worker = NoHub()
    with pytest.raises(ArtefactFailed, match="hub not reachable") as caught:
        ArtefactStore(tmp_path).prepare(entry(hub="org/name", build={}), workload(), {"checkpoint"}, worker)
    assert caught.value.state is State.UNAVAILABLE
    assert worker.tasks[0].model is not None
    assert worker.tasks[0].model.build == {"hub": "org/name"}
