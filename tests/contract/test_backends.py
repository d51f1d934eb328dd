"""What every environment backend promises, checked over all of them with toy frameworks."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from tiny_wheels import make_wheel, toy_environment, toy_framework

from matrix.catalog.types import Framework
from matrix.environments.base import Backend, BuildFailed, BuiltEnvironment
from matrix.environments.choose import NoContainers
from matrix.environments.host import HostBackend
from matrix.environments.venv import VenvBackend
from matrix.records import Environment

MakeBackend = Callable[[Path, Framework], Backend]


def _venv(home: Path, framework: Framework) -> Backend:
    return VenvBackend({framework.name: framework}, home)


def _host(home: Path, framework: Framework) -> Backend:
    return HostBackend({framework.name: framework}, home)


@pytest.fixture(params=[_venv, _host], ids=["venv", "host"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeBackend:
    """A backend that can have `packaging`, which the host has and a tiny wheel plays in a virtualenv."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    make_wheel(tmp_path / "wheels", "packaging", present().default_version)
    backend: MakeBackend = request.param
    return backend


def present() -> Framework:
    """Installed in the host, and offered as a wheel."""
    return toy_framework(name="packaging", version=importlib.metadata.version("packaging"))


@pytest.fixture
def built(make: MakeBackend, tmp_path: Path) -> Iterator[BuiltEnvironment]:
    framework = present()
    backend = make(tmp_path / "home", framework)
    yield backend.build(toy_environment(framework))
    backend.close()


def test_a_built_environment_says_what_it_is(built: BuiltEnvironment) -> None:
    assert built.environment == toy_environment(present())
    assert built.backend in ("venv", "host")
    assert f"packaging=={built.environment.version}" in built.lock
    names = [canonicalize_name(item.partition("==")[0]) for item in built.lock]
    assert names == sorted(set(names))
    assert built.key
    assert built.seconds >= 0


def test_its_interpreter_runs_and_is_the_version_it_says(built: BuiltEnvironment) -> None:
    code = "import platform; print(platform.python_version())"
    assert _run(built, code) == built.python_version


def test_a_worker_can_be_started_in_it(built: BuiltEnvironment, tmp_path: Path) -> None:
    command = built.command(tmp_path / "in", tmp_path / "out")
    assert command[0] == str(built.python)
    assert command[-2:] == [str(tmp_path / "in"), str(tmp_path / "out")]
    found = _run(built, "import matrix_adapters.protocol as p; print(p.__file__)")
    assert Path(found).is_relative_to(built.worker_path)


def test_a_worker_imports_the_framework_of_its_environment(built: BuiltEnvironment) -> None:
    assert _run(built, "import packaging; print(packaging.__version__)") == built.environment.version


def test_nothing_but_adapters_lies_on_the_path_that_is_added(built: BuiltEnvironment) -> None:
    assert [p.name for p in built.worker_path.iterdir()] == ["matrix_adapters"]


def test_the_users_python_settings_do_not_reach_the_worker(
    built: BuiltEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    monkeypatch.setenv("PYTHONSTARTUP", "/nonexistent")
    monkeypatch.setenv("VIRTUAL_ENV", "/nonexistent")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    environ = built.environ()
    assert not {"PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV"} & environ.keys()
    assert environ["SOMETHING_ELSE"] == "kept"


def test_asked_again_it_is_reused_with_the_same_key(make: MakeBackend, tmp_path: Path) -> None:
    framework = present()
    backend = make(tmp_path / "home", framework)
    first, second = (backend.build(toy_environment(framework)) for _ in range(2))
    backend.close()
    assert second.reused
    assert second.key == first.key
    assert second.lock == first.lock


def test_what_cannot_be_had_is_a_reason_with_a_code_and_a_remedy(make: MakeBackend, tmp_path: Path) -> None:
    framework = toy_framework(name="nowhere")
    backend = make(tmp_path / "home", framework)
    with pytest.raises(BuildFailed) as caught:
        backend.build(toy_environment(framework))
    backend.close()
    reason = caught.value.reason
    assert reason.code in ("not_installed", "no_such_version")
    assert "nowhere" in reason.text.lower()
    assert "\n" not in reason.text
    assert "Traceback" not in reason.text


def test_another_version_than_the_one_asked_is_never_handed_out(make: MakeBackend, tmp_path: Path) -> None:
    framework = present()
    backend = make(tmp_path / "home", framework)
    with pytest.raises(BuildFailed) as caught:
        backend.build(toy_environment(framework, version="0.0.1"))
    backend.close()
    assert "0.0.1" in caught.value.reason.text
    assert framework.default_version in caught.value.reason.text


def test_a_backend_that_cannot_build_says_why_for_every_environment() -> None:
    backend: Backend = NoContainers("no engine; use --backend venv")
    environment = Environment(framework="toy", version="1", hardware="cpu")
    with pytest.raises(BuildFailed) as caught:
        backend.build(environment)
    backend.close()
    assert backend.name == "docker"
    assert caught.value.reason.text == "no engine; use --backend venv"


def _run(built: BuiltEnvironment, code: str) -> str:
    command = [str(built.python), "-P", "-c", code]
    return subprocess.run(
        command, env=built.environ(), capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
