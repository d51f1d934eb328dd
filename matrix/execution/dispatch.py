"""Run a task in whatever environment it was built for: a process here, or what it brings itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from matrix.execution.cancel import Cancel
from matrix.execution.local import Startable, run_worker
from matrix.execution.talk import Live
from matrix_adapters.protocol import Result, Task


@runtime_checkable
class Runs(Protocol):
    """A built environment whose launches are not plain processes of this machine."""

    def run_task(
        self,
        task: Task,
        folder: Path,
        *,
        timeout_s: float,
        stall_s: float,
        on_phase: Callable[[str], None] | None = None,
        cancel: Cancel | None = None,
        out_dir: Path | None = None,
    ) -> Result:
        """As `matrix.execution.local.run_worker`."""

    def open_live(
        self,
        task: Task,
        folder: Path,
        *,
        timeout_s: float,
        stall_s: float,
        cancel: Cancel | None = None,
    ) -> AbstractContextManager[Live]:
        """As `matrix.execution.live.open_live`."""


def own_way(built: Startable) -> Runs | None:
    """`built` where it runs its launches itself; None for a plain process.

    Raises TypeError for one that has only half of it: what was built for a container must never
    become a process of this machine.
    """
    if isinstance(built, Runs):
        return built
    if hasattr(built, "run_task") or hasattr(built, "open_live"):
        raise TypeError(f"{type(built).__name__} has to have both `run_task` and `open_live`")
    return None


def run_task(
    built: Startable,
    task: Task,
    folder: Path,
    *,
    timeout_s: float,
    stall_s: float,
    on_phase: Callable[[str], None] | None = None,
    cancel: Cancel | None = None,
    out_dir: Path | None = None,
) -> Result:
    """One launch in a fresh process; see `matrix.execution.local.run_worker` for what it promises."""
    if (own := own_way(built)) is not None:
        return own.run_task(
            task,
            folder,
            timeout_s=timeout_s,
            stall_s=stall_s,
            on_phase=on_phase,
            cancel=cancel,
            out_dir=out_dir,
        )
    return run_worker(
        built,
        task,
        folder,
        timeout_s=timeout_s,
        stall_s=stall_s,
        on_phase=on_phase,
        cancel=cancel,
        out_dir=out_dir,
    )
