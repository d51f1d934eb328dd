"""Which engine is meant, and what is said when it cannot be reached; no engine is needed for that."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import docker
import pytest

from matrix.environments.choose import container_engine
from matrix.execution import connect
from matrix.execution.bridge import ssh_command


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker configuration of the test's own, with the context `lab`."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "docker"
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    meta = folder / "contexts" / "meta" / sha256(b"lab").hexdigest()
    meta.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    endpoint = {"docker": {"Host": f"unix://{tmp_path}/lab.sock", "SkipTLSVerify": False}}
    (meta / "meta.json").write_text(json.dumps({"Name": "lab", "Metadata": {}, "Endpoints": endpoint}))
    return folder


def test_the_usual_socket_is_meant_where_nothing_is_said() -> None:
    assert connect.address() == connect.DEFAULT_SOCKET == connect.described()


def test_the_variable_goes_before_any_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "lab")
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    assert connect.described() == "tcp://elsewhere:2375"


@pytest.mark.parametrize("how", ["variable", "current"])
def test_a_context_is_followed_and_named(
    own_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "variable":
        monkeypatch.setenv("DOCKER_CONTEXT", "lab")
    else:
        (own_config / "config.json").write_text('{"currentContext": "lab"}')
    engine = container_engine()
    assert not engine.answers
    assert f"unix://{tmp_path}/lab.sock (docker context lab)" in engine.said


def test_a_context_that_does_not_exist_never_becomes_the_local_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    engine = container_engine()
    assert not engine.answers
    assert "there is no docker context 'nowhere'" in engine.said


def _fake_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    ssh = folder / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")


def test_an_engine_over_ssh_that_does_not_answer_is_told_in_sshs_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _fake_ssh(tmp_path, monkeypatch, "echo 'user@lab: Permission denied (publickey).' >&2; exit 255")
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@lab:2222")
    engine = container_engine()
    assert not engine.answers
    assert "ssh://user@lab:2222" in engine.said
    assert "Permission denied (publickey)" in engine.said
    assert "`docker -H ssh://user@lab:2222 version` has to work" in engine.said


def test_an_ssh_that_hangs_is_given_up_and_asks_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _fake_ssh(tmp_path, monkeypatch, f'echo "$@" >{tmp_path}/arguments; exec sleep 60')
    monkeypatch.setenv("DOCKER_HOST", "ssh://hangs")
    engine = container_engine(timeout_s=1)
    assert not engine.answers
    assert "BatchMode=yes" in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize(
    ("address", "end"),
    [
        ("ssh://lab", "-- lab docker system dial-stdio"),
        ("ssh://me@lab:2222", "-l me -p 2222 -- lab docker system dial-stdio"),
        ("ssh://lab/run/podman.sock", "-- lab docker --host unix:///run/podman.sock system dial-stdio"),
    ],
)
def test_the_command_is_the_one_of_dockers_own_client(address: str, end: str) -> None:
    assert " ".join(ssh_command(address)).endswith(end)


@pytest.mark.parametrize(
    ("base_url", "local"),
    [
        ("http+docker://localhost", True),
        ("http://build.example:2375", False),
        ("https://10.0.0.2:2376", False),
    ],
)
def test_an_engine_elsewhere_is_not_taken_for_this_machine(base_url: str, local: bool) -> None:
    client = docker.DockerClient(base_url="tcp://127.0.0.1:9", version="1.41")
    client.api.base_url = base_url
    assert connect.is_local(client) is local
