"""Operator cases on their way into a container: no path of this machine, every file where the task says."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from matrix.execution.archives import pack
from matrix.execution.box import JOB, _case_entries
from matrix.execution.container import _placed
from matrix_adapters.protocol import Task, TaskKind

FILES = {"case.json": b"{}", "model.onnx": b"\x08\x0a", "inputs.npz": b"PK", "expected.npz": b"PK2"}


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A batch over three prepared cases, as the host asks for it."""
    folders = []
    for number in range(3):
        folder = tmp_path / "artefacts" / f"Gelu-{number}"
        folder.mkdir(parents=True)
        for name, content in FILES.items():
            (folder / name).write_bytes(content + bytes([number]))
        folders.append(str(folder))
    options: dict[str, Any] = {"cases": folders, "first": 1}
    return Task(kind=TaskKind.OPERATORS, framework="toy", adapter="toy", options=options)


def placed(task: Task) -> Task:
    plan: Any = SimpleNamespace(worker=Path("/host/worker"), image="image", python="3.12")
    volumes: Any = SimpleNamespace(of_worker=lambda *_: "worker", of_path=lambda *_: "volume")
    return _placed(task, plan, volumes)[1]


def sent(task: Task) -> dict[str, bytes]:
    """Every file of the archive, by the path that it has inside."""
    stream = io.BytesIO(b"".join(pack(_case_entries(task))))
    with tarfile.open(fileobj=stream) as archive:
        files = {}
        for member in archive:
            content = archive.extractfile(member)
            assert member.mode & 0o444 == 0o444, "whoever the worker runs as can read it"
            if content is not None:
                files[f"{JOB}/{member.name}"] = content.read()
    return files


def test_the_task_inside_names_the_folders_that_the_archive_makes(task: Task) -> None:
    inside, files = placed(task), sent(task)
    assert inside.options["first"] == 1
    assert len(inside.options["cases"]) == 3
    for number, folder in enumerate(inside.options["cases"]):
        assert {name: files[f"{folder}/{name}"] for name in FILES} == {
            name: content + bytes([number]) for name, content in FILES.items()
        }
    assert len(files) == 3 * len(FILES)


def test_no_path_of_this_machine_goes_inside(task: Task, tmp_path: Path) -> None:
    assert str(tmp_path) not in repr(placed(task))
    assert task.options["cases"][0].startswith(str(tmp_path)), "the host's own task is as it was"


def test_other_tasks_carry_no_cases() -> None:
    assert sent(Task(kind=TaskKind.MEASURE, framework="toy", adapter="toy")) == {}
