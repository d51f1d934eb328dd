"""A live pair on an engine that is reached over ssh, with a server of our own on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from live_toys import ToyHalf
from private_engine import PrivateEngine

from matrix.environments.bundle import Bundle
from matrix.execution import connect
from matrix.execution.container import Plan, open_in_container
from matrix.execution.engine import Engine
from matrix.execution.volumes import Volumes
from matrix_adapters.protocol import State

SSHD = Path("/usr/sbin/sshd")


@pytest.fixture
def remote(
    private: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[docker.DockerClient]:
    """The private engine, as the product reaches one whose DOCKER_HOST is `ssh://`."""
    pytest.importorskip("paramiko", reason="docker-py needs it for engines over ssh")
    if not SSHD.exists() or shutil.which("ssh") is None:
        pytest.skip("needs an ssh server and its client")
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(key, check=True)
    port = _free_port()
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {tmp_path}/host",
        "UsePAM no",
        "PidFile none",
    ]
    lines += [f"AuthorizedKeysFile {tmp_path}/user.pub", "StrictModes no", "PermitRootLogin yes"]
    lines += [f"SetEnv DOCKER_HOST={private.url}"]
    (tmp_path / "sshd_config").write_text("\n".join(lines) + "\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", tmp_path / "sshd_config"], stderr=subprocess.DEVNULL)
    _put_first(tmp_path / "bin", f"-i {tmp_path}/user -o UserKnownHostsFile={tmp_path}/known", monkeypatch)
    monkeypatch.setenv("DOCKER_HOST", f"ssh://root@127.0.0.1:{port}")
    try:
        _until_it_listens(port)
        with contextlib.closing(connect.client(60)) as client:
            yield client
    finally:
        server.terminate()
        server.wait()


def test_a_live_pair_takes_turns_on_an_engine_over_ssh(
    remote: docker.DockerClient, tiny: str, tmp_path: Path
) -> None:
    engine = Engine(remote)
    plan = Plan(image=tiny, python="/usr/bin/python3", worker=Bundle(tmp_path).stage(), run="ssh")
    volumes = Volumes(engine, tmp_path, "ssh")
    built = ToyHalf(tmp_path / "null")
    task = built.task({"warmup_calls": 1, "calls": 1}, adapter="matrix_adapters.null", inputs=None)
    halves = [
        open_in_container(plan, engine, volumes, task, tmp_path / name, timeout_s=120, stall_s=60)
        for name in "abc"
    ]
    with halves[0] as a, halves[1] as b:
        assert a.wait_ready()
        assert b.wait_ready()
        for live in (a, b, b, a):
            assert live.run(3) is not None
        assert [live.finish().state for live in (a, b)] == [State.OK, State.OK]
    with halves[2] as left_alone:
        assert left_alone.wait_ready()
    assert not remote.containers.list(all=True)


def _put_first(folder: Path, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ssh command that knows our key and asks nothing."""
    folder.mkdir()
    command = folder / "ssh"
    command.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -o StrictHostKeyChecking=no {options} "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return
