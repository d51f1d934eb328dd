"""Real small processes that end in every way a worker can, and what is said of each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from matrix.errors import StorageError
from matrix.execution import ending, local, oom, watch
from matrix.execution.cancel import Cancel
from matrix.execution.ending import Ending, Stop, conclude
from matrix.execution.environ import clean
from matrix.execution.local import run_worker
from matrix_adapters.protocol import Heartbeat, Result, State, Task, TaskKind, to_json

TASK = Task(kind=TaskKind.MEASURE, framework="toy", adapter="toy")
GOOD = to_json(Result(state=State.OK))
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

PRELUDE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
out = Path(sys.argv[2])
def beat(phase):
    temporary = out / "beat"
    temporary.write_text(json.dumps({"phase": phase, "since": time.time(), "at": time.time()}))
    temporary.replace(out / "heartbeat.json")
def result(text):
    (out / "result.json").write_text(text)
GOOD = %r
beat("load")
"""


class Script:
    """A stand-in for an environment: the worker is a few lines of Python."""

    def __init__(self, code: str) -> None:
        self.code = PRELUDE % GOOD + textwrap.dedent(code)

    def command(self, in_dir: Path, out_dir: Path) -> list[str]:
        return [sys.executable, "-S", "-c", self.code, str(in_dir), str(out_dir)]

    def environ(self) -> dict[str, str]:
        return dict(os.environ)


def launch(folder: Path, code: str, **options: Any) -> Result:
    settings = {"timeout_s": 30.0, "stall_s": 30.0, "tick_s": 0.05, **options}
    return run_worker(Script(code), TASK, folder, **settings)


def reason(result: Result) -> tuple[State, str, str]:
    assert result.reason is not None
    return result.state, result.reason.code, result.reason.text


def test_a_result_is_returned_with_what_was_seen_from_outside(tmp_path: Path) -> None:
    result = launch(tmp_path, "result(GOOD)")
    assert result.state is State.OK
    assert result.reason is None
    seen = result.probes["orchestrator"]
    assert seen["exit_status"] == 0
    assert 0 < seen["wall_s"] < 30
    assert json.loads((tmp_path / "in/task.json").read_text())["framework"] == "toy"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGSEGV, "memory access"),
        (signal.SIGILL, "CPU features"),
        (signal.SIGABRT, "gave up"),
        (signal.SIGBUS, "/dev/shm"),
    ],
)
def test_a_crash_names_the_signal_and_the_phase(tmp_path: Path, number: signal.Signals, words: str) -> None:
    state, code, text = reason(launch(tmp_path, f"os.kill(os.getpid(), {int(number)})"))
    assert (state, code) == (State.FAILED, "crash")
    assert f"killed by {number.name} during load" in text
    assert words in text


def test_sigkill_without_evidence_of_the_kernel_is_a_kill_from_outside(tmp_path: Path) -> None:
    state, code, text = reason(launch(tmp_path, "os.kill(os.getpid(), 9)"))
    assert (state, code) == (State.FAILED, "killed")
    assert "SIGKILL during load" in text


def test_sigkill_while_the_kernels_oom_counter_grew_is_oom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([oom.OomCounters(group=1, machine=7), oom.OomCounters(group=2, machine=8)])
    monkeypatch.setattr(local, "read_counters", lambda: next(counts))
    monkeypatch.setattr(local, "memory_limit", lambda: 256 << 20)
    state, code, text = reason(launch(tmp_path, "os.kill(os.getpid(), 9)"))
    assert (state, code) == (State.OOM, "oom_kill")
    assert "limit 256 MiB" in text


def test_an_exit_status_is_reported_with_the_last_words_of_the_log(tmp_path: Path) -> None:
    code = r"print('\x1b[31mmissing libfoo.so\x1b[0m', flush=True); os._exit(3)"
    state, kind, text = reason(launch(tmp_path, code))
    assert (state, kind) == (State.FAILED, "exit_status")
    assert "exit status 3" in text
    assert text.endswith("missing libfoo.so")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("pass", "missing_result"),
        ("result('')", "broken_result"),
        ("result(GOOD[:20])", "broken_result"),
        ("result(GOOD + 'x')", "broken_result"),
        ("result('[]')", "broken_result"),
        ("(out / 'result.json').write_bytes(bytes([255, 254]))", "broken_result"),
        ("(out / 'result.json').mkdir()", "broken_result"),
        ('result(GOOD.replace(\'"metrics":{}\', \'"metrics":{"latency_ms":NaN}\'))', "broken_result"),
        ('result(GOOD.replace(\'"metrics":{}\', \'"metrics":{"latency_ms":1e999}\'))', "broken_result"),
        ('result(GOOD.replace(\'"state":"ok"\', \'"state":"fine"\'))', "broken_result"),
        ("result(GOOD.replace('\"schema\":1', '\"schema\":2'))", "wrong_schema"),
        ("f = open(out / 'result.json', 'wb'); f.truncate(65 << 20)", "oversized_result"),
    ],
)
def test_a_result_that_cannot_be_used_is_a_failure_with_its_own_code(
    tmp_path: Path, code: str, kind: str
) -> None:
    state, found, text = reason(launch(tmp_path, code))
    assert (state, found) == (State.FAILED, kind), text


def test_a_result_of_an_earlier_attempt_in_the_same_folder_is_not_taken_for_this_one(tmp_path: Path) -> None:
    launch(tmp_path, "result(GOOD)")
    assert reason(launch(tmp_path, "pass"))[1] == "missing_result"


def test_a_crash_after_the_result_was_written_is_a_flag_on_it(tmp_path: Path) -> None:
    result = launch(tmp_path, "result(GOOD); os.kill(os.getpid(), 11)")
    assert result.state is State.OK
    assert [flag.code for flag in result.flags] == ["unclean_exit"]
    assert "SIGSEGV" in result.flags[0].text


def test_the_deadline_ends_a_worker_that_shows_signs_of_life(tmp_path: Path) -> None:
    code = """
    while True:
        beat("compile")
        time.sleep(0.05)
    """
    state, kind, text = reason(launch(tmp_path, code, timeout_s=0.6, stall_s=30))
    assert (state, kind) == (State.TIMEOUT, "deadline")
    assert "during compile" in text


def test_silence_without_processor_time_is_a_hang(tmp_path: Path) -> None:
    state, kind, text = reason(launch(tmp_path, "time.sleep(600)", stall_s=0.5))
    assert (state, kind) == (State.TIMEOUT, "no_sign_of_life")
    assert "during load" in text


def test_silence_with_processor_time_is_slow_progress(tmp_path: Path) -> None:
    code = """
    end = time.process_time() + 1.2
    while time.process_time() < end: pass
    result(GOOD)
    """
    assert launch(tmp_path, code, stall_s=0.3).state is State.OK


def test_a_heartbeat_keeps_a_waiting_worker_alive(tmp_path: Path) -> None:
    code = """
    for _ in range(12):
        beat("first_call")
        time.sleep(0.1)
    result(GOOD)
    """
    assert launch(tmp_path, code, stall_s=0.8).state is State.OK


def test_a_worker_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "GRACE_S", 0.2)
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN); beat('stubborn'); time.sleep(600)"
    result = launch(tmp_path, code, timeout_s=1.0)
    assert result.state is State.TIMEOUT
    assert result.probes["orchestrator"]["exit_status"] == -signal.SIGKILL


def test_a_stop_request_ends_the_launch_at_once(tmp_path: Path) -> None:
    cancel = Cancel()
    began = time.monotonic()
    result = launch(tmp_path, "time.sleep(600)", cancel=cancel, on_phase=lambda _: cancel.set(), tick_s=0.05)
    cancel.close()
    assert reason(result)[:2] == (State.INTERRUPTED, "interrupted")
    assert time.monotonic() - began < 20


@LINUX
def test_nothing_that_the_worker_started_outlives_it(tmp_path: Path) -> None:
    code = """
    kinds = [["sleep", "600"], ["setsid", "sleep", "600"], ["setsid", "sh", "-c", "sleep 600 & sleep 600"]]
    (out / "pids").write_text(" ".join(str(subprocess.Popen(k).pid) for k in kinds))
    result(GOOD)
    """
    result = launch(tmp_path, code)
    assert result.state is State.OK
    assert result.probes["orchestrator"]["killed_afterwards"] >= 2
    for pid in map(int, (tmp_path / "out/pids").read_text().split()):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@LINUX
def test_killing_one_launch_leaves_the_other_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        launch(tmp_path, "os.kill(os.getpid(), 9)")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_an_interpreter_that_is_gone_is_a_reason_not_a_traceback(tmp_path: Path) -> None:
    class Gone(Script):
        def command(self, in_dir: Path, out_dir: Path) -> list[str]:
            return ["/nowhere/python"]

    result = run_worker(Gone(""), TASK, tmp_path, timeout_s=5, stall_s=5)
    assert reason(result)[:2] == (State.FAILED, "cannot_start")
    assert "/nowhere/python" in reason(result)[2]


def test_a_task_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "launch").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="launch"):
        launch(tmp_path / "launch", "pass")


def test_a_worker_that_floods_its_log_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_LOG_BYTES", 1 << 20)
    state, kind, _ = reason(launch(tmp_path, "while True: print('x' * 4096)"))
    assert (state, kind) == (State.FAILED, "log_flood")


def test_waiting_for_a_worker_costs_us_less_than_half_a_percent_of_a_core(tmp_path: Path) -> None:
    # A sleeping worker stands for a timed one; starting it is 1 to 3 ms of our own.
    result = launch(tmp_path, "time.sleep(3); result(GOOD)", tick_s=local.TICK_S)
    seen = result.probes["orchestrator"]
    assert seen["own_cpu_s"] / seen["wall_s"] < 0.005


def test_a_full_disk_is_named_where_no_result_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_FULL_DISK_BYTES", 1 << 62)
    state, kind, text = reason(launch(tmp_path, "os._exit(1)"))
    assert (state, kind) == (State.FAILED, "disk_full")
    assert str(tmp_path) in text


@pytest.mark.parametrize("status", [0, 1, -9, -11, -15, -40, 255])
@pytest.mark.parametrize("stopped", [None, *Stop])
@pytest.mark.parametrize("oom_seen", [False, True])
def test_every_ending_without_a_result_has_a_state_and_a_sentence(
    tmp_path: Path, status: int, stopped: Stop | None, oom_seen: bool
) -> None:
    end = Ending(status=status, phase="", seconds=1.0, stopped=stopped, oom=oom_seen)
    result = conclude(end, tmp_path)
    assert result.state not in (State.OK, State.NOT_RUN)
    assert result.reason is not None
    assert result.reason.text


def test_the_workers_variables_are_ours_without_interpreter_switches_and_profilers() -> None:
    inherited = {
        "PATH": "/bin",
        "PYTHONPATH": "/host",
        "PYTHONPROFILEIMPORTTIME": "1",
        "NSYS_PROFILING_SESSION_ID": "1",
        "LD_PRELOAD": "libjemalloc.so",
    }
    environ, record = clean(inherited, {**inherited, "PYTHONPATH": "/bundle"})
    assert environ == {"PATH": "/bin", "PYTHONPATH": "/bundle", "LD_PRELOAD": "libjemalloc.so"}
    assert set(record["removed"]) == {"PYTHONPATH", "PYTHONPROFILEIMPORTTIME", "NSYS_PROFILING_SESSION_ID"}
    assert record["preloaded"] == {"LD_PRELOAD": "libjemalloc.so"}
    assert record["set"] == {"PYTHONPATH": "/bundle"}


@pytest.mark.parametrize(
    ("files", "group", "limit"),
    [
        ({"unified.d/memory.events": "oom 3\noom_kill 2\n", "unified.d/memory.max": "max\n"}, 2, None),
        ({"memory.events": "oom_kill 4\n", "memory.max": "268435456\n"}, 4, 268435456),
        (
            {
                "memory/job/memory.oom_control": "under_oom 0\noom_kill 5\n",
                "memory/job/memory.limit_in_bytes": "1024",
            },
            5,
            1024,
        ),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None, None),
    ],
)
def test_oom_counters_and_limits_are_read_in_both_cgroup_versions(
    tmp_path: Path, files: dict[str, str], group: int | None, limit: int | None
) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("4:memory:/job\n0::/unified.d\n")
    (proc / "vmstat").write_text("pgfault 1\noom_kill 9\n")
    for name, text in files.items():
        path = cgroups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    counters = oom.read_counters(proc, cgroups)
    assert counters == oom.OomCounters(group=group, machine=9)
    assert not counters.grew_since(counters)
    assert counters.grew_since(oom.OomCounters(group=None, machine=8))
    assert oom.memory_limit(proc, cgroups) == limit


def test_a_heartbeat_that_is_torn_is_no_sign_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "heartbeat.json").write_text(to_json(Heartbeat(phase="load", since=1.0, at=2.0))[:9])
    assert ending.read_heartbeat(tmp_path) is None
