"""Open one half of a live pair in whatever environment it was built for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from matrix.execution.cancel import Cancel
from matrix.execution.dispatch import own_way
from matrix.execution.local import LocalWorker, Startable
from matrix.execution.talk import Live
from matrix_adapters.protocol import Task

__all__ = ["Live", "open_live"]


def open_live(
    built: Startable,
    task: Task,
    folder: Path,
    *,
    timeout_s: float,
    stall_s: float,
    cancel: Cancel | None = None,
) -> AbstractContextManager[Live]:
    """Start `task` (of kind SLICES) in a fresh process, not waited for. Leaving kills what still runs.

    As with `run_worker`, whatever happens to it ends in a result (`Live.finish`): `timeout_s` is
    for its whole life, `stall_s` counts only while something is expected of it. Raises
    StorageError when the task cannot be written, EngineLost when no container can be made.
    Open it in a thread that outlives it.
    """
    if (own := own_way(built)) is not None:
        return own.open_live(task, folder, timeout_s=timeout_s, stall_s=stall_s, cancel=cancel)
    return _open_local(built, task, folder, timeout_s=timeout_s, stall_s=stall_s, cancel=cancel)


@contextlib.contextmanager
def _open_local(
    built: Startable, task: Task, folder: Path, *, timeout_s: float, stall_s: float, cancel: Cancel | None
) -> Iterator[Live]:
    with LocalWorker(
        built, task, folder, timeout_s=timeout_s, stall_s=stall_s, cancel=cancel, talking=True
    ) as worker:
        yield Live(worker)
