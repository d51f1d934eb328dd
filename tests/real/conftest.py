"""Fixtures over the real frameworks: their environments, and what runs in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
import shared_environments

from matrix.environments.base import BuiltEnvironment
from matrix.execution.local import run_worker
from matrix_adapters.protocol import Result, Task


class RunTask(Protocol):
    """Runs one worker task in a framework's environment; `out_dir` gets what it leaves."""

    def __call__(self, framework: str, task: Task, out_dir: Path, *, timeout_s: float = 600) -> Result: ...


@pytest.fixture(scope="session")
def built() -> Callable[[str], BuiltEnvironment]:
    """framework name -> its default version's CPU environment (or the only build it has)."""
    return shared_environments.builder()


@pytest.fixture(scope="session")
def run_task(built: Callable[[str], BuiltEnvironment]) -> RunTask:
    """Run one task and return its result; files lie in `out_dir` afterwards."""

    def run(framework: str, task: Task, out_dir: Path, *, timeout_s: float = 600) -> Result:
        folder = out_dir.parent / f"{out_dir.name}.launch"
        result = run_worker(built(framework), task, folder, timeout_s=timeout_s, stall_s=timeout_s)
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        (folder / "out").rename(out_dir) if not out_dir.exists() else _merge(folder / "out", out_dir)
        return result

    return run


def _merge(source: Path, target: Path) -> None:
    for path in source.iterdir():
        path.rename(target / path.name)
