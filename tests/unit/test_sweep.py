"""The loop, with real worker processes of a toy framework: what is planned is reported, whatever happens."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import host_cost
import psutil
import pytest
from toy_sweep import ToySweep

from matrix.consolidate.stored import records_of
from matrix.errors import ExitCode
from matrix.sweep.observer import Progress, Silent
from matrix.sweep.order import block_order
from matrix_adapters.protocol import State

SCRIPT = Path(__file__).parents[1] / "toy_sweep.py"
ADAPTERS = Path(__file__).parents[2] / "adapters"


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


def worker_of(sweep: ToySweep, model: str) -> int:
    """The process id of the last worker that began on `model`."""
    return int([line for line in sweep.started() if f" {model} " in line][-1].split()[-1])


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_begun(sweep: ToySweep, model: str) -> Callable[[], bool]:
    return lambda: any(f" {model} " in line for line in sweep.started())


@contextlib.contextmanager
def orchestrator(sweep: ToySweep) -> Iterator[subprocess.Popen[str]]:
    """The sweep in a process of its own, as a user starts it."""
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(sweep.folder)],
        env={**os.environ, "PYTHONPATH": f"{ADAPTERS}{os.pathsep}{SCRIPT.parent}"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_every_planned_cell_is_reported_in_one_state_and_the_exit_code_is_1(tmp_path: Path) -> None:
    sweep = ToySweep(
        tmp_path,
        models=["good", "wrong", "nan", "crash", "exit", "unavailable", "unsupported", "unmade"],
    )
    outcome = sweep.run()
    assert sweep.states() == {
        "good": State.OK,
        "wrong": State.INCORRECT,
        "nan": State.INCORRECT,
        "crash": State.FAILED,
        "exit": State.FAILED,
        "unavailable": State.UNAVAILABLE,
        "unsupported": State.UNSUPPORTED,
        "unmade": State.FAILED,
    }
    records = {record.workload.subject: record for record in records_of(sweep.stored())}
    assert all(record.reason for record in records.values() if record.state is not State.OK)
    assert "SIGSEGV during load" in records["crash"].reason.text  # type: ignore[union-attr]
    assert records["unavailable"].reason.text == "cuda asked, only cpu is seen"  # type: ignore[union-attr]
    assert records["unavailable"].attempts == 1, "a missing device is not asked for again"
    assert records["good"].metrics["latency_ms"].n == 2
    assert records["good"].metrics["peak_memory_bytes"].value > 1e6
    assert records["wrong"].metrics["latency_ms"].value > 0, "shown struck through, so it must be there"
    assert not records["crash"].metrics
    assert outcome.exit_code == ExitCode.VERDICT
    assert outcome.states[State.OK] == 1
    assert sum(outcome.states.values()) == len(sweep.cells)


def test_right_outputs_are_deleted_and_wrong_ones_kept_as_evidence(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good", "wrong"], launches=1)
    folder = sweep.run().folder
    wrong = next(cell for cell in sweep.cells if cell.workload.subject == "wrong")
    assert [path.parent.name for path in folder.rglob("*-outputs.npz")] == [wrong.id]
    assert not (folder / "scratch").exists()
    good = records_of(sweep.stored())[0].launches[-1]
    assert good.outputs["y"]["sha256"]
    assert sweep.stored().samples(good)["wall_ns"].size == 5


def test_a_model_without_a_reference_is_measured_and_says_that_nobody_checked_it(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["unjudged"], launches=1)
    outcome = sweep.run()
    record = records_of(sweep.stored())[0]
    assert outcome.states == {State.OK: 1}
    assert [flag.code for flag in record.flags if flag.code == "no_reference"] == ["no_reference"]
    assert "max_scaled_error" in record.absent


def test_a_finished_run_that_is_resumed_starts_no_worker(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good", "crash"], launches=1)
    first = sweep.run()
    before = sweep.started()
    again = sweep.resume()
    assert sweep.started() == before
    assert again.exit_code == first.exit_code == ExitCode.VERDICT
    assert len(sweep.stored().header.sessions) == 2


def test_timed_launches_never_overlap_and_each_block_follows_the_seed(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good_a", "good_b"], frameworks=["toy", "other"], launches=2)
    sweep.run()
    launches = [
        launch
        for record in records_of(sweep.stored())
        for launch in record.launches
        if launch.purpose == "measure"
    ]
    launches.sort(key=lambda launch: launch.started)
    assert all(a.ended <= b.started for a, b in itertools.pairwise(launches))
    wanted = [cell.id for block in (0, 1) for cell in block_order(sweep.cells, 1, block)]
    assert [launch.cell for launch in launches] == wanted


def test_an_environment_that_cannot_be_built_costs_only_its_own_cells(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good"], versions=["1.0", "broken"], launches=1)
    outcome = sweep.run()
    ok, failed = records_of(sweep.stored())
    assert (ok.state, failed.state) == (State.OK, State.BUILD_FAILED)
    assert failed.reason is not None
    assert failed.reason.code == "no_wheel"
    assert outcome.exit_code == ExitCode.VERDICT


@pytest.mark.parametrize(
    ("models", "cells", "code"),
    [
        (["good", "unavailable"], {}, ExitCode.OK),
        (["good", "unavailable"], {"unavailable": {"required": True}}, ExitCode.VERDICT),
        (["good", "crash"], {"crash": {"xfail": "known"}}, ExitCode.OK),
    ],
)
def test_required_and_expected_failures_decide_the_exit_code(
    tmp_path: Path, models: list[str], cells: dict[str, dict[str, object]], code: ExitCode
) -> None:
    assert ToySweep(tmp_path, models=models, cells=cells, launches=1).run().exit_code == code


def test_a_spent_budget_leaves_the_rest_not_run_and_resume_does_it(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good"], launches=1)
    outcome = sweep.run(budget_s=0)
    (record,) = records_of(sweep.stored())
    assert record.state is State.NOT_RUN
    assert record.reason is not None
    assert record.reason.code == "budget"
    assert outcome.exit_code == ExitCode.OK
    assert outcome.resume_command == f"matrix run --resume {outcome.run} --results {outcome.folder.parent}"
    assert sweep.resume().states == {State.OK: 1}


def test_ctrl_c_stops_within_seconds_keeps_everything_and_resume_repeats_nothing(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good_a", "good_b", "hang"], launches=1)
    with orchestrator(sweep) as process:
        wait_until(has_begun(sweep, "hang"), "the hanging cell")
        wait_until(lambda: sum(" memory " in line for line in sweep.started()) == 3, "all memory launches")
        wait_until(lambda: _memory_done(sweep) == 2, "the other memory launches")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == ExitCode.INTERRUPTED
    assert not is_alive(worker_of(sweep, "hang"))
    states = sweep.states()
    assert states["hang"] is State.INTERRUPTED
    assert states["good_a"] is State.NOT_RUN
    before = sweep.started()
    (sweep.bundle / "healed").touch()
    assert sweep.resume().states == {State.OK: 3}
    repeated = [line for line in sweep.started()[len(before) :] if " memory " in line]
    assert [line.split()[1] for line in repeated] == ["hang"], "only what was interrupted is done again"


def test_an_interrupt_during_the_only_launch_is_an_interrupt(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["hang"], launches=1)
    with orchestrator(sweep) as process:
        wait_until(has_begun(sweep, "hang"), "the hanging cell")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == ExitCode.INTERRUPTED
    assert sweep.states() == {"hang": State.INTERRUPTED}
    assert sweep.stored().header.outcome == "interrupted"


TWICE = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what ends with `&`
import sys, time
from pathlib import Path
from matrix.execution.cancel import Cancel
from matrix.execution.process import ProcessGroup
from matrix.sweep.interrupts import Interrupts
folder = Path(sys.argv[1])
cancel = Cancel()
with Interrupts(cancel, lambda: (folder / "closed").touch()):
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    group = ProcessGroup([sys.executable, "-c", stubborn], environ=os.environ, cwd=folder, log=folder / "log")
    (folder / "pid").write_text(str(group.pid))
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)  # passed on by a wrapper: the same request
    assert cancel.is_set()
    time.sleep(0.4)
    os.kill(os.getpid(), signal.SIGINT)
print("not reached")
"""


def test_a_second_ctrl_c_kills_the_workers_and_ends_the_process_at_once(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TWICE, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (ExitCode.INTERRUPTED, ""), ended.stderr
    assert (tmp_path / "closed").exists(), "the terminal was left as it was"
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(pid), "the worker's end")


def test_a_killed_worker_fails_its_cell_only_and_resume_tries_it_again(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good", "hang"], launches=1)
    with orchestrator(sweep) as process:
        wait_until(has_begun(sweep, "hang"), "the hanging cell")
        os.kill(worker_of(sweep, "hang"), signal.SIGKILL)
        assert process.wait(30) == ExitCode.VERDICT
    assert sweep.states() == {"good": State.OK, "hang": State.FAILED}
    reason = records_of(sweep.stored())[1].reason
    assert reason is not None
    assert reason.code == "killed"
    (sweep.bundle / "healed").touch()
    outcome = sweep.resume()
    assert outcome.exit_code == ExitCode.OK
    hang = records_of(sweep.stored())[1]
    assert hang.state is State.OK
    assert [launch.attempt for launch in hang.launches if launch.purpose == "memory"] == [1, 2]


def test_kill_9_of_the_orchestrator_takes_its_worker_along_and_loses_nothing(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good_a", "good_b", "hang"], launches=1)
    with orchestrator(sweep) as process:
        wait_until(has_begun(sweep, "hang"), "the hanging cell")
        wait_until(lambda: _memory_done(sweep) == 2, "the other memory launches")
        worker = worker_of(sweep, "hang")
        process.kill()
        process.wait()
    wait_until(lambda: not is_alive(worker), "the worker's end")
    states = sweep.states()
    assert set(states.values()) == {State.NOT_RUN}
    run = sweep.stored()
    with (run.folder / "attempts.jsonl").open("ab") as stream:
        stream.write(b'{"kind":"launch","cell":"to')  # what a power cut leaves
    assert sweep.states() == states
    (sweep.bundle / "healed").touch()
    outcome = sweep.resume()
    assert outcome.states == {State.OK: 3}
    assert len([line for line in sweep.started() if "good" in line and " memory " in line]) == 2


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 KiB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system needs the right to mount one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_with_exit_code_3_and_resume_goes_on_when_there_is_room(
    tmp_path: Path, tiny_disk: Path
) -> None:
    sweep = ToySweep(tmp_path / "toy", models=["good_a", "good_b"], launches=1, results=tiny_disk)

    class Filler(Silent):
        """Fills the disk once one launch is stored."""

        def show(self, progress: Progress) -> None:
            if progress.stage == "memory" and progress.state is not None:
                with contextlib.suppress(OSError), (tiny_disk / "ballast").open("ab", buffering=0) as stream:
                    while True:
                        stream.write(b"\0" * 4096)

    outcome = sweep.run(observer=Filler())
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert outcome.outcome == "broken_off"
    assert "disk full" in str(outcome.error)
    assert sum(outcome.states.values()) == 2
    assert State.OK not in sweep.states().values(), "planned = reported, without cells.jsonl"
    stored = sweep.stored().attempts().count()
    assert stored >= 1
    (tiny_disk / "ballast").unlink()
    assert sweep.resume().states == {State.OK: 2}


def test_a_worker_that_finds_the_disk_full_breaks_the_run_off(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["full"], launches=1)
    outcome = sweep.run()
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert sweep.states() == {"full": State.FAILED}


def test_a_build_that_finds_the_disk_full_breaks_the_run_off(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good"], versions=["1.0", "too-large"], launches=1)
    outcome = sweep.run()
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert [record.state for record in records_of(sweep.stored())] == [State.NOT_RUN, State.BUILD_FAILED]


def test_a_launch_that_hangs_is_ended_at_its_deadline(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["hang"], launches=1, timeout_s=2)
    outcome = sweep.run()
    (record,) = records_of(sweep.stored())
    assert record.state is State.TIMEOUT
    assert record.reason is not None
    assert "during load" in record.reason.text
    assert record.attempts == 2, "a memory launch that may have been crowded out is tried again, alone"
    assert outcome.exit_code == ExitCode.VERDICT


def test_our_own_part_of_a_cell_is_small_in_time_and_memory(tmp_path: Path) -> None:
    found = host_cost.measure(tmp_path, 100)  # tests/bench does the same with 1,000
    assert found["cpu_ms_per_cell"] < 50
    assert found["peak_bytes"] < 300e6


def _memory_done(sweep: ToySweep) -> int:
    if not list(sweep.results.glob("*/run.json")):
        return 0
    attempts = sweep.stored().attempts()
    return sum(1 for cell in sweep.cells for launch in attempts.launches(cell.id) if launch.state is State.OK)
