"""Environments of a shipped framework that differ on purpose, built and started."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from matrix import catalog, paths
from matrix.environments import changes, interpreters
from matrix.environments.base import BuiltEnvironment
from matrix.environments.venv import VenvBackend
from matrix.execution.local import run_worker
from matrix.records import Environment
from matrix_adapters.protocol import Result, State, Task, TaskKind

pytestmark = pytest.mark.real

FRAMEWORKS = catalog.load().frameworks


@pytest.fixture(scope="module")
def build() -> Callable[..., BuiltEnvironment]:
    backend = VenvBackend(FRAMEWORKS, paths.home())

    def one(version: str, *texts: str) -> BuiltEnvironment:
        side = changes.parse(texts, FRAMEWORKS["onnxruntime"], "--candidate-with")
        return backend.build(
            Environment(
                framework="onnxruntime", version=version, hardware="cpu", build="cpu", changes=side.changes
            )
        )

    return one


def probed(built: BuiltEnvironment, folder: Path) -> Result:
    task = Task(kind=TaskKind.PROBE, framework="onnxruntime", adapter="matrix_adapters.onnxruntime")
    result = run_worker(built, task, folder, timeout_s=120, stall_s=120)
    assert result.state is State.OK, result.reason
    return result


def test_another_numpy_is_what_the_worker_sees_and_nothing_else_changed(
    build: Callable[..., BuiltEnvironment], tmp_path: Path
) -> None:
    usual, changed = build("1.32.0"), build("1.32.0", "numpy=2.2.0", "env:ORT_LOGGING=quiet")
    assert probed(changed, tmp_path).versions["numpy"] == "2.2.0"
    assert set(changed.lock) ^ set(usual.lock) == {"numpy==2.2.0", "numpy==2.4.6"}
    assert changed.flags == ()
    assert changed.environ()["ORT_LOGGING"] == "quiet"


def test_a_release_that_the_catalog_does_not_list_is_built_with_a_numpy_that_it_can_load(
    build: Callable[..., BuiltEnvironment], tmp_path: Path
) -> None:
    result = probed(build("1.18.1"), tmp_path)
    assert result.versions["onnxruntime"] == "1.18.1"
    assert result.versions["numpy"].startswith("1.26.")


def test_another_python_runs_the_worker(build: Callable[..., BuiltEnvironment], tmp_path: Path) -> None:
    other = _other_python()
    if not other:
        pytest.skip("there is no other Python on this machine")
    built = build("1.32.0", f"python={other}")
    assert probed(built, tmp_path).versions["python"] == built.python_version != platform.python_version()


def _other_python() -> str:
    here = ".".join(platform.python_version_tuple()[:2])
    for version in {"3.11", "3.12", "3.13"} - {here}:
        with contextlib.suppress(interpreters.NoInterpreter):
            return interpreters.find(version).path
    managed = sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin/python"))
    return str(managed[0]) if managed else ""
