"""The worker's artefact tasks: make a checkpoint, export it to ONNX, compute the reference.

They run in the PyTorch environment, leave their files in the task's `out/` folder and say in
`Result.artefacts` what they made.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters import tensors
from matrix_adapters.adapter import Unsupported
from matrix_adapters.launch import timestamp
from matrix_adapters.protocol import ModelSpec, Result, State, Task, TaskKind, file_hash

ONNX_FILE = "model.onnx"


def handle(task: Task, out_dir: Path) -> Result:
    """Do the artefact task. Raises Unsupported or Unavailable, with the reason, for what cannot be.

    CHECKPOINT leaves the checkpoint's files in `out_dir`; EXPORT reads
    `task.artefacts["checkpoint"]`, `task.inputs` and `task.options["axes"]` and leaves
    model.onnx; REFERENCE reads the same, and `task.artefacts["expected"]` where the user gave
    outputs, and leaves the three sets of outputs.
    """
    started, begin = timestamp(), time.perf_counter()
    with _quiet():
        made = _WORK[task.kind](task, _model(task), out_dir)
    if isinstance(made, Result):
        return made
    import torch

    return Result(
        state=State.OK,
        phases={f"{task.kind.value}_s": time.perf_counter() - begin},
        versions={"torch": torch.__version__, "numpy": np.__version__},
        artefacts=made,
        started=started,
        ended=timestamp(),
    )


def _checkpoint(task: Task, model: ModelSpec, out_dir: Path) -> dict[str, Any]:
    _start_torch(task)
    from matrix_adapters import checkpoints

    return checkpoints.make(model, out_dir)


def _export(task: Task, model: ModelSpec, out_dir: Path) -> dict[str, Any]:
    _start_torch(task)
    from matrix_adapters import export

    path = out_dir / ONNX_FILE
    facts = export.export(model, _folder(task), _feed(task), task.options.get("axes", {}), path)
    files = {
        p.name: {"sha256": file_hash(p), "bytes": p.stat().st_size}
        for p in sorted(out_dir.glob(f"{ONNX_FILE}*"))
    }
    return {**facts, "files": files}


def _reference(task: Task, model: ModelSpec, out_dir: Path) -> dict[str, Any] | Result:
    if model.format == "onnx":
        from matrix_adapters import onnx_reference

        return onnx_reference.handle(task, out_dir)
    _start_torch(task)
    from matrix_adapters import reference

    expected = task.artefacts.get("expected")
    return reference.write_reference(
        model, _folder(task), _feed(task), out_dir, tensors.load(Path(expected)) if expected else None
    )


_WORK: dict[TaskKind, Callable[[Task, ModelSpec, Path], dict[str, Any] | Result]] = {
    TaskKind.CHECKPOINT: _checkpoint,
    TaskKind.EXPORT: _export,
    TaskKind.REFERENCE: _reference,
}


def _start_torch(task: Task) -> None:
    """One thread count for all: the order of float sums must not depend on the machine's cores."""
    import torch

    torch.set_num_threads(max(1, task.threads))


def _model(task: Task) -> ModelSpec:
    if task.model is None:
        raise Unsupported(f"a {task.kind.value} task needs a model")
    return task.model


def _folder(task: Task) -> Path:
    if "checkpoint" not in task.artefacts:
        raise Unsupported(f"a {task.kind.value} task needs a checkpoint folder")
    return Path(task.artefacts["checkpoint"])


def _feed(task: Task) -> dict[str, np.ndarray]:
    if task.inputs is None:
        raise Unsupported(f"a {task.kind.value} task needs inputs")
    return tensors.load(Path(task.inputs))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter reports on standard output; the log is where a worker's words belong."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with contextlib.redirect_stdout(sys.stderr):
        yield
