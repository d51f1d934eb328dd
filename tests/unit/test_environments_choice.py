"""Which backend is taken and why, and what the `host` backend finds in an interpreter."""

from __future__ import annotations

import platform
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from tiny_wheels import toy_environment, toy_framework

from matrix.environments import choose as choice
from matrix.environments.base import Backend, BuildFailed
from matrix.environments.choose import Asked, Chosen, Engine, NoContainers, choose, container_engine
from matrix.environments.host import HostBackend

ANSWERS = Engine(True, "the container engine 29.1 answers")
SILENT = Engine(False, "no container engine answers at /var/run/docker.sock (No such file or directory)")


class Toys:
    """Containers as `choose` sees them."""

    def __init__(self, problem: str = "") -> None:
        self._problem = problem

    def problem(self, timeout_s: float) -> str:
        return self._problem

    def backend(self) -> Backend:
        return NoContainers("stands for the real one")


def chosen(asked: Asked, engine: Engine, home: Path, problem: str = "") -> Chosen:
    framework = toy_framework()
    return choose(asked, {"toy": framework}, home, lambda: Toys(problem), engine=lambda: engine)


def test_auto_takes_virtualenvs_and_says_that_no_engine_answers(tmp_path: Path) -> None:
    got = chosen("auto", SILENT, tmp_path)
    assert got.backend.name == "venv"
    assert got.why == f"virtualenvs, because {SILENT.said}"


def test_auto_takes_containers_where_an_engine_answers_and_nothing_is_missing(tmp_path: Path) -> None:
    got = chosen("auto", ANSWERS, tmp_path)
    assert got.backend.name == "docker"
    assert got.why == f"containers, because {ANSWERS.said}"


def test_auto_takes_virtualenvs_where_a_base_image_is_missing_and_says_which(tmp_path: Path) -> None:
    got = chosen("auto", ANSWERS, tmp_path, problem="the base image x is not there")
    assert got.backend.name == "venv"
    assert "29.1 answers, but the base image x is not there" in got.why


def test_docker_that_was_asked_for_is_taken_whatever_is_missing(tmp_path: Path) -> None:
    got = chosen("docker", ANSWERS, tmp_path, problem="the base image x is not there")
    assert got.backend.name == "docker"


def test_docker_never_falls_back(tmp_path: Path) -> None:
    engine = SILENT
    got = chosen("docker", engine, tmp_path)
    assert got.backend.name == "docker"
    with pytest.raises(BuildFailed) as caught:
        got.backend.build(toy_environment(toy_framework()))
    assert caught.value.reason.code == "no_containers"
    assert engine.said in caught.value.reason.text


@pytest.mark.parametrize("asked", ["venv", "host"])
def test_a_named_backend_is_taken_without_asking_the_engine(tmp_path: Path, asked: Asked) -> None:
    def never() -> Engine:
        raise AssertionError("the engine was asked")

    got = choose(asked, {}, tmp_path, Toys, engine=never)
    assert got.backend.name == asked
    assert f"--backend {asked}" in got.why


def test_a_missing_socket_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    engine = container_engine()
    assert not engine.answers
    assert f"unix://{tmp_path}/none.sock" in engine.said


def test_a_refused_connection_is_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    engine = container_engine()
    assert not engine.answers
    assert "refused" in engine.said


def test_an_engine_that_accepts_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        engine = container_engine(timeout_s=1)
    assert not engine.answers


def test_a_probe_that_hangs_does_not_hang_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    monkeypatch.setattr(choice, "_ask_engine", lambda _: forever.wait())
    started = time.monotonic()
    engine = container_engine(timeout_s=0.2)
    forever.set()
    assert time.monotonic() - started < 5
    assert engine == Engine(False, "the container engine did not answer in 0.2 s")


def install(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def host(tmp_path: Path, **changes: object) -> HostBackend:
    framework = toy_framework(provided_by=["toy", "toy-gpu"], **changes)  # type: ignore[arg-type]
    return HostBackend({"toy": framework}, tmp_path / "home", search_path=[str(tmp_path / "site")])


def test_the_host_backend_hands_out_the_running_interpreter(tmp_path: Path) -> None:
    install(tmp_path / "site", "toy", "1.0")
    install(tmp_path / "site", "helper", "3.1")
    backend = host(tmp_path)
    built = backend.build(toy_environment(toy_framework()))
    backend.close()
    assert built.python == Path(sys.executable)
    assert built.python_version == platform.python_version()
    assert built.lock == ("helper==3.1", "toy==1.0")
    assert built.reused
    assert [flag.code for flag in built.flags] == ["not_isolated"]


def test_a_local_version_is_the_version_asked_for(tmp_path: Path) -> None:
    install(tmp_path / "site", "toy", "1.0+cpu")
    backend = host(tmp_path)
    assert "toy==1.0+cpu" in backend.build(toy_environment(toy_framework())).lock
    backend.close()


@pytest.mark.parametrize(
    ("here", "code", "said"),
    [
        ({}, "not_installed", "toy, toy-gpu"),
        ({"toy": "2.0"}, "other_version", "1.0 was asked for"),
        ({"toy": "1.0", "toy_gpu": "1.0"}, "two_distributions", "toy and toy-gpu"),
    ],
)
def test_the_host_backend_never_pretends(tmp_path: Path, here: dict[str, str], code: str, said: str) -> None:
    for name, version in here.items():
        install(tmp_path / "site", name, version)
    with pytest.raises(BuildFailed) as caught:
        host(tmp_path).build(toy_environment(toy_framework()))
    assert caught.value.reason.code == code
    assert said in caught.value.reason.text
    if code == "other_version":
        assert "has 2.0" in caught.value.reason.text


def test_packages_that_came_by_pythonpath_stay_importable_for_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "toy", "1.0")
    monkeypatch.setenv("PYTHONPATH", "/modules/toy")
    backend = host(tmp_path)
    built = backend.build(toy_environment(toy_framework()))
    backend.close()
    assert built.environ()["PYTHONPATH"].split(":") == [str(built.worker_path), "/modules/toy"]
