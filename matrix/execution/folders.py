"""The two folders of a launch, as they are before it begins."""

from __future__ import annotations

from pathlib import Path

from matrix.store.durable import storage
from matrix_adapters.protocol import HEARTBEAT_FILE, RESULT_FILE, TASK_FILE, Task, to_json


def prepare(folder: Path, out_dir: Path) -> Path:
    """Make both, with nothing of an earlier launch that could be taken for this one's; the folder `in/`."""
    in_dir = folder / "in"
    with storage(folder):
        in_dir.mkdir(parents=True, exist_ok=True)
        out_dir.mkdir(parents=True, exist_ok=True)
        (out_dir / RESULT_FILE).unlink(missing_ok=True)
        (out_dir / HEARTBEAT_FILE).unlink(missing_ok=True)
    return in_dir


def write_task(task: Task, in_dir: Path) -> None:
    """The task, for the worker and for whoever wants to know later what it was told."""
    with storage(in_dir.parent):
        (in_dir / TASK_FILE).write_text(to_json(task), encoding="utf-8")
