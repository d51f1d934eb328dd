"""Builds that are stopped, killed, or raced: nothing half-made is used, no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tiny_wheels import make_source, make_wheel, toy_environment, toy_framework

from matrix.environments import base, locks
from matrix.environments.base import BuildCancelled, build_all
from matrix.environments.process import run_owned
from matrix.environments.venv import VenvBackend

ORCHESTRATOR = """
import sys
from pathlib import Path
from tiny_wheels import toy_environment, toy_framework
from matrix.environments.base import build_all
from matrix.environments.venv import VenvBackend
framework = toy_framework()
build_all(VenvBackend({"toy": framework}, Path(sys.argv[1])), [toy_environment(framework)])
"""


@pytest.fixture
def slow_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toy that never finishes building; the file says which process is at it."""
    pid_file = tmp_path / "builder.pid"
    hook = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    make_source(tmp_path / "wheels", "toy", hook=hook)
    return pid_file


def wait_for(what: Callable[[], object], timeout_s: float = 60) -> None:
    """Until `what` is true; the test fails when it never is."""
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def builder(pid_file: Path) -> int:
    wait_for(lambda: pid_file.exists() and pid_file.read_text())
    return int(pid_file.read_text())


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_cancelled_build_leaves_neither_folder_nor_process(slow_build: Path, tmp_path: Path) -> None:
    framework = toy_framework()
    backend = VenvBackend({"toy": framework}, tmp_path / "home")
    cancelled = threading.Event()
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            backend.build(toy_environment(framework), cancelled=cancelled)
        except BuildCancelled as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    pid = builder(slow_build)
    cancelled.set()
    thread.join(30)
    assert len(outcome) == 1
    wait_for(lambda: gone(pid))
    assert [p for p in backend.folder.iterdir() if p.is_dir()] == []


def test_ctrl_c_ends_all_builds_before_it_goes_on(
    slow_build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = toy_framework()
    backend = VenvBackend({"toy": framework}, tmp_path / "home")
    pids: list[int] = []

    def interrupted(_: object) -> None:
        pids.append(builder(slow_build))
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_all(backend, [toy_environment(framework)])
    wait_for(lambda: gone(pids[0]))
    assert [p for p in backend.folder.iterdir() if p.is_dir()] == []


def test_a_killed_orchestrator_takes_its_builds_with_it_and_the_next_one_starts_anew(
    slow_build: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    orchestrator = subprocess.Popen([sys.executable, "-c", ORCHESTRATOR, str(home)], env=environ)
    pid = builder(slow_build)
    orchestrator.send_signal(signal.SIGKILL)
    orchestrator.wait()
    wait_for(lambda: gone(pid))
    half = [p for p in (home / "environments").iterdir() if p.is_dir()]
    assert len(half) == 1, "the test needs a half-made environment to be left"
    (tmp_path / "wheels" / "toy-1.0.tar.gz").unlink()
    make_wheel(tmp_path / "wheels", "toy")
    framework = toy_framework()
    backend = VenvBackend({"toy": framework}, home)
    told: list[str] = []
    built = backend.build(toy_environment(framework), progress=told.append)
    backend.close()
    assert built.lock == ("toy==1.0",)
    assert told[0] == "building it anew: an earlier build was not finished"


def test_a_second_run_waits_for_the_build_of_the_first_and_says_so(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    told: list[str] = []
    cancelled = threading.Event()
    with locks.exclusive(lock):
        waiter = threading.Thread(
            target=lambda: locks.release(locks.shared(lock, waiting=lambda: told.append("waiting")))
        )
        waiter.start()
        wait_for(lambda: told)
        cancelled.set()
        with pytest.raises(BuildCancelled):
            locks.shared(lock, cancelled=cancelled)
    waiter.join(10)
    assert not waiter.is_alive()
    assert told == ["waiting"]


def test_users_share_a_lock_and_keep_the_remover_out(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    assert not locks.in_use(lock)
    one, two = locks.shared(lock), locks.shared(lock)
    with locks.exclusive_or_none(lock) as free:
        assert not free
    locks.release(one)
    assert locks.in_use(lock)
    locks.release(two)
    with locks.exclusive_or_none(lock) as free:
        assert free


def test_output_status_and_log_of_a_command_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines: list[str] = []
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    status, output = run_owned(
        [sys.executable, "-u", "-c", code], log=log, environ=dict(os.environ), on_line=lines.append
    )
    assert status == 7
    assert output == "out\nerr\n"
    assert lines == ["out", "err"]
    assert log.read_text().startswith("$ ")
    assert log.read_text().endswith("out\nerr\n")


def test_a_command_that_dies_by_a_signal_has_the_shells_status(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    status, _ = run_owned([sys.executable, "-c", code], log=tmp_path / "log", environ=dict(os.environ))
    assert status == 128 + signal.SIGSEGV


def test_what_a_command_left_running_ends_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))\n"
    )
    run_owned([sys.executable, "-c", code], log=tmp_path / "log", environ=dict(os.environ))
    wait_for(lambda: gone(int(pid_file.read_text())))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_disk_that_fills_up_while_installing_is_disk_full_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
        files = {"toy/__init__.py": "", "toy/weights.txt": os.urandom(3_000_000).hex()}
        make_wheel(tmp_path / "wheels", "toy", files=files)
        framework = toy_framework()
        backend = VenvBackend({"toy": framework}, small)
        with pytest.raises(base.BuildFailed) as caught:
            backend.build(toy_environment(framework))
        backend.close()
        assert caught.value.reason.code == "disk_full"
        assert [p for p in (small / "environments").iterdir() if p.is_dir()] == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
