"""What a row of cells shares: one checkpoint, its ONNX export, the inputs, the float64 reference.

The host asks for them by content and finds them in the cache; what is missing, a worker task
of the PyTorch environment makes. Weights are made from the catalog entry's seed, or are the
user's own (a folder, an ONNX file, a hub id). Everything has a hash, which goes into the cells.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matrix_adapters
from matrix.artefacts import checkpoint_folder, graph_cases, inputs
from matrix.artefacts import expected as expected_outputs
from matrix.artefacts.content_cache import ContentCache, files_hash, read_contents
from matrix.artefacts.operator_store import NotPrepared, OperatorStore, PreparedCase, Stoppable
from matrix.catalog.types import InputEntry, ModelEntry
from matrix.errors import ConfigError
from matrix.records import Workload
from matrix_adapters.protocol import (
    HEARTBEAT_FILE,
    LOG_FILE,
    OUTPUTS_FILE,
    RESULT_FILE,
    SAMPLES_FILE,
    TASK_FILE,
    ModelSpec,
    OperatorCase,
    Reason,
    Result,
    State,
    Task,
    TaskKind,
    content_hash,
    file_hash,
)

RunTask = Callable[[Task, Path], Result]

ONNX_FILE = "model.onnx"

# Whose source decides what the files hold: a change in one of them makes new artefacts.
_MAKERS: Mapping[TaskKind, tuple[str, ...]] = {
    TaskKind.CHECKPOINT: ("checkpoints.py", "torch_declarative.py"),
    TaskKind.EXPORT: ("export.py", "torch_models.py", "torch_declarative.py"),
    TaskKind.REFERENCE: ("reference.py", "torch_models.py", "torch_declarative.py", "tensors.py"),
}
_ONNX_REFERENCE = ("onnx_reference.py", "onnx_promote.py", "operators/oracle_*.py")

# What a worker leaves beside the files that it was asked for.
_BOOKKEEPING = (TASK_FILE, RESULT_FILE, HEARTBEAT_FILE, LOG_FILE, SAMPLES_FILE, OUTPUTS_FILE)


class ArtefactFailed(Exception):
    """An artefact cannot be had: the state its cells end in, and the reason."""

    def __init__(self, reason: Reason, state: State = State.FAILED) -> None:
        super().__init__(reason.text)
        self.reason = reason
        self.state = state


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artefacts:
    """Where everything lies, and what is known of it.

    `paths`: `inputs` (.npz), `reference` (folder; missing where there can be none), and
    `checkpoint` (folder) or `onnx` (file) as asked. `hashes`: SHA-256 of `inputs`, `reference`,
    `weights` (the safetensors) and `onnx`, as far as they exist. `facts`: what their
    makers said, by the same names.
    """

    paths: Mapping[str, Path]
    hashes: Mapping[str, str]
    spec: ModelSpec
    facts: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Source:
    """Where the weights are: a checkpoint folder, or (a user's) ONNX file."""

    spec: ModelSpec
    kind: str  # "checkpoint" | "onnx"
    path: Path
    key: str
    hashes: Mapping[str, str]
    facts: Mapping[str, Any]


class ArtefactStore:
    """The artefacts below `home/artefacts`. Safe for several threads and several processes.

    `environment_key` names the PyTorch environment that makes them: another set of pins may
    make other bytes, so it is part of every key.
    """

    def __init__(self, home: Path, environment_key: str = "") -> None:
        self._cache = ContentCache(home / "artefacts")
        self._environment_key = environment_key
        self._users: dict[tuple[Path, int, int], str] = {}
        self._users_lock = threading.Lock()

    def prepare(self, model: ModelEntry, workload: Workload, needs: set[str], run: RunTask) -> Artefacts:
        """Find or make what a workload needs: `checkpoint` and/or `onnx`, always inputs and reference.

        `run(task, out_dir)` runs one worker task in the PyTorch environment. Raises ArtefactFailed
        with a reason, StorageError for a full disk.
        """
        if model.format == "onnx" and "checkpoint" in needs:
            text = f"{model.name} is a bare ONNX file: a framework that loads checkpoints cannot run it"
            raise ArtefactFailed(Reason(code="needs_checkpoint", text=text), State.UNSUPPORTED)
        given = self._inputs(model, workload)
        source = self._source(model, run)
        reference, reference_facts = self._reference(model, source, given, run)
        paths = {"inputs": given.path, source.kind: source.path}
        hashes = {"inputs": given.sha256, **source.hashes}
        facts = {"inputs": given.facts, "reference": reference_facts, **source.facts}
        if reference is not None:
            paths["reference"], hashes["reference"] = reference, _folder_hash(reference)
        if "onnx" in needs and source.kind == "checkpoint":
            exported, export_facts = self._onnx(model, source, given, run)
            paths["onnx"], facts["onnx"] = exported, export_facts
            hashes["onnx"] = export_facts["files"][ONNX_FILE]["sha256"]
        return Artefacts(paths=paths, hashes=hashes, spec=source.spec, facts=facts)

    def prepare_operators(
        self, cases: Sequence[OperatorCase], run: RunTask, *, ended: Callable[[int], None], cancel: Stoppable
    ) -> dict[tuple[str, str], PreparedCase | NotPrepared]:
        """Find or make the files of operator cases; see `matrix.artefacts.operator_store`."""
        return OperatorStore(self._cache, self._environment_key).prepare(
            cases, run, ended=ended, cancel=cancel
        )

    def operators_of(
        self, model: ModelEntry, workload: Workload, run: RunTask
    ) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """The operators of a model's ONNX file at a workload's shapes; see `matrix.artefacts.graph_cases`."""
        given = self._inputs(model, workload)
        source = self._source(model, run)
        path, sha256 = source.path, source.hashes.get("onnx", "")
        if source.kind == "checkpoint":
            path, facts = self._onnx(model, source, given, run)
            sha256 = facts["files"][ONNX_FILE]["sha256"]
        return graph_cases.graph_cases(
            self._cache,
            self._environment_key,
            model=model.name,
            onnx=path,
            sha256=sha256,
            shapes={name: list(shape) for name, shape in given.shapes.items()},
            run=run,
        )

    # --- inputs ---------------------------------------------------------------------------

    def _inputs(self, model: ModelEntry, workload: Workload) -> _Inputs:
        problems = inputs.problems(model, workload.batch, workload.sequence)
        if problems:
            raise ArtefactFailed(Reason(code="bad_input", text="; ".join(problems)))
        recipe = {
            "inputs": {n: _recipe(e) for n, e in model.inputs.items()},
            "seed": model.seed,
            "batch": workload.batch,
            "sequence": workload.sequence if model.has_sequence else None,
            "generator": _host_code(),
        }

        def make(folder: Path) -> tuple[int, Mapping[str, Any]]:
            arrays = inputs.make_inputs(model, workload.batch, workload.sequence)
            return 0, inputs.write_inputs(model, arrays, folder)

        try:
            folder = self._cache.get_or_make("inputs", model.name, [content_hash(recipe)], make)
        except inputs.InputProblem as problem:
            raise ArtefactFailed(Reason(code="bad_input", text=str(problem))) from None
        facts = _facts(folder)
        return _Inputs(
            path=folder / inputs.INPUTS_FILE,
            sha256=facts["sha256"],
            facts=facts["inputs"],
            shapes={n: f["shape"] for n, f in facts["inputs"].items()},
        )

    # --- weights --------------------------------------------------------------------------

    def _source(self, model: ModelEntry, run: RunTask) -> _Source:
        if model.format == "onnx":
            return self._user_onnx(model)
        if model.path is not None:
            return self._user_folder(model)
        return self._checkpoint(model, run)

    def _checkpoint(self, model: ModelEntry, run: RunTask) -> _Source:
        spec = model.spec()
        if model.hub is not None:
            spec = dataclasses.replace(spec, build={"hub": model.hub})
        # Names of inputs and outputs are no part of the weights.
        recipe = {"format": spec.format, "seed": spec.seed, "build": spec.build}
        key = self._key(TaskKind.CHECKPOINT, recipe)

        def make(folder: Path) -> tuple[int, Mapping[str, Any]]:
            return 0, _run(run, _task(TaskKind.CHECKPOINT, spec), folder)

        folder = self._cache.get_or_make("checkpoints", model.name, [key], make)
        facts = _facts(folder)
        files = {n: f for n, f in facts["files"].items() if n.endswith(".safetensors")}
        config = {n: f for n, f in facts["files"].items() if n == "config.json"}
        return _Source(
            spec=spec,
            kind="checkpoint",
            path=folder,
            key=_weights_key(files, config),
            hashes={"weights": files_hash(files), "config": files_hash(config)},
            facts={"weights": {"seed": spec.seed, **facts["weights"], "made_by": facts["versions"]}},
        )

    def _user_folder(self, model: ModelEntry) -> _Source:
        path = _path(model)
        try:
            checkpoint_folder.read_config(path)
            files = checkpoint_folder.weight_files(path)
        except ConfigError as refusal:
            text = f"model refused by safe loading: {refusal}"
            raise ArtefactFailed(Reason(code="model_refused", text=text)) from None
        weights = self._hashed(files)
        config = self._hashed([path / "config.json"])
        return _Source(
            spec=model.spec(),
            kind="checkpoint",
            path=path,
            key=_weights_key(weights, config),
            hashes={"weights": files_hash(weights), "config": files_hash(config)},
            facts={"weights": {"given": str(path)}},
        )

    def _user_onnx(self, model: ModelEntry) -> _Source:
        from matrix.artefacts import onnx_file

        path = _path(model)
        try:
            found = onnx_file.inspect(path)
        except onnx_file.OnnxRefused as refusal:
            raise ArtefactFailed(refusal.reason) from None
        facts = {"given": str(path), "opsets": dict(found.opsets), "ir_version": found.ir_version}
        return _Source(
            spec=model.spec(),
            kind="onnx",
            path=path,
            key=content_hash(found.sha256),
            hashes={"onnx": found.sha256},
            facts={"onnx": facts},
        )

    def _hashed(self, paths: list[Path]) -> dict[str, dict[str, Any]]:
        """name -> {"sha256", "bytes"} of a user's files, hashed again only when they changed."""
        found = {}
        for path in paths:
            stat = path.stat()
            key = (path, stat.st_mtime_ns, stat.st_size)
            with self._users_lock:
                if key not in self._users:
                    self._users[key] = file_hash(path)
                found[path.name] = {"sha256": self._users[key], "bytes": stat.st_size}
        return found

    # --- what is derived from weights -----------------------------------------------------

    def _onnx(
        self, model: ModelEntry, source: _Source, given: _Inputs, run: RunTask
    ) -> tuple[Path, Mapping[str, Any]]:
        """One file for all shapes where the exporter can; else one for exactly these shapes."""
        axes = {n: list(e.shape or given.shapes[n]) for n, e in model.inputs.items()}
        recipe = {
            "weights": source.key,
            "axes": axes,
            "task": source.spec.task,
            "outputs": source.spec.outputs,
        }
        keys = [
            self._key(TaskKind.EXPORT, recipe),
            self._key(TaskKind.EXPORT, {**recipe, "shapes": given.shapes}),
        ]
        task = _task(
            TaskKind.EXPORT,
            source.spec,
            artefacts={"checkpoint": str(source.path)},
            inputs=str(given.path),
            options={"axes": axes},
        )

        def make(folder: Path) -> tuple[int, Mapping[str, Any]]:
            facts = _run(run, task, folder)
            return (0 if facts["dynamic"] else 1), facts

        folder = self._cache.get_or_make("onnx", model.name, keys, make)
        return folder / ONNX_FILE, _facts(folder)

    def _reference(
        self, model: ModelEntry, source: _Source, given: _Inputs, run: RunTask
    ) -> tuple[Path | None, Mapping[str, Any]]:
        """The folder and its facts; no folder, and why, where nothing can evaluate the model in float64."""
        artefacts = {source.kind: str(source.path)}
        expected = None
        if model.expected is not None:
            if text := expected_outputs.problem(model.expected, model.outputs):
                raise ArtefactFailed(Reason(code="bad_expected", text=text))
            artefacts["expected"] = str(model.expected)
            expected = file_hash(model.expected)
        recipe = {
            "weights": source.key,
            "inputs": given.sha256,
            "task": source.spec.task,
            "outputs": source.spec.outputs,
            "expected": expected,
            "evaluator": _code_hash(_ONNX_REFERENCE) if source.kind == "onnx" else "",
        }
        task = _task(TaskKind.REFERENCE, source.spec, artefacts=artefacts, inputs=str(given.path))

        def make(folder: Path) -> tuple[int, Mapping[str, Any]]:
            return 0, _run(run, task, folder)

        try:
            folder = self._cache.get_or_make(
                "references", model.name, [self._key(TaskKind.REFERENCE, recipe)], make
            )
        except ArtefactFailed as failed:
            if failed.reason.code != "no_reference":
                raise
            return None, {"missing": f"numerics were not checked: {failed.reason.text}"}
        return folder, _facts(folder)

    def _key(self, kind: TaskKind, recipe: Mapping[str, Any]) -> str:
        return content_hash([recipe, self._environment_key, _code_hash(_MAKERS[kind])])


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Inputs:
    path: Path
    sha256: str
    facts: Mapping[str, Any]
    shapes: Mapping[str, list[int]]


def _run(run: RunTask, task: Task, folder: Path) -> Mapping[str, Any]:
    """Run the task and keep only what it was asked for; its facts. Raises ArtefactFailed."""
    result = run(task, folder)
    if result.state is not State.OK:
        reason = result.reason or Reason(
            code="unknown", text=f"{task.kind.value} ended as {result.state.value}"
        )
        text = f"{task.kind.value}: {reason.text}"
        raise ArtefactFailed(Reason(code=reason.code, text=text), result.state)
    for name in _BOOKKEEPING:
        (folder / name).unlink(missing_ok=True)
    return result.artefacts


def _task(kind: TaskKind, spec: ModelSpec, **more: Any) -> Task:
    # One thread: the order of float sums must not depend on the cores of the machine.
    return Task(
        kind=kind, framework="pytorch", adapter="matrix_adapters.pytorch", model=spec, threads=1, **more
    )


def _facts(folder: Path) -> dict[str, Any]:
    contents = read_contents(folder)
    if contents is None:  # it was there a moment ago
        text = f"{folder} lost its description while it was in use"
        raise ArtefactFailed(Reason(code="cache_changed", text=text))
    facts: dict[str, Any] = contents["facts"]
    return facts


def _folder_hash(folder: Path) -> str:
    contents = read_contents(folder)
    return files_hash(contents["files"]) if contents else ""


def _path(model: ModelEntry) -> Path:
    if model.path is None:
        text = f"{model.name}: a model in the format {model.format} needs `path`"
        raise ArtefactFailed(Reason(code="no_path", text=text))
    return model.path


def _weights_key(weights: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """What a model computes is decided by both: epsilons and activations are in the config."""
    return content_hash([files_hash(weights), files_hash(config)])


def _recipe(entry: InputEntry) -> dict[str, Any]:
    """An input entry as its key sees it: a file by its content, not by its name."""
    recipe: dict[str, Any] = entry.model_dump(mode="json")
    if entry.file is not None and entry.file.is_file():
        recipe["file"] = file_hash(entry.file)
    return recipe


def _code_hash(patterns: tuple[str, ...]) -> str:
    folder = Path(matrix_adapters.__path__[0])
    return content_hash([file_hash(path) for pattern in patterns for path in sorted(folder.glob(pattern))])


def _host_code() -> str:
    return file_hash(Path(inputs.__file__))[:16]
