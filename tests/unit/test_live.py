"""Real live pairs in real processes: whose turn it is, what is recorded, and every way one can end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from live_toys import ADAPTERS, ToyHalf

from matrix.execution.cancel import Cancel
from matrix.execution.live import Live, open_live
from matrix.execution.local import LocalWorker, run_worker
from matrix_adapters.protocol import Measure, Result, State, from_json, to_json

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


@pytest.fixture
def half(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open one half with a toy adapter; `task` fields and options as in `ToyHalf.task`."""

    def start(
        change: str = "",
        *,
        name: str = "a",
        options: dict[str, Any] | None = None,
        timeout_s: float = 60,
        stall_s: float = 30,
        cancel: Cancel | None = None,
        **fields: Any,
    ) -> Any:
        built = ToyHalf(tmp_path / name, change)
        task = built.task(options, **fields)
        folder = tmp_path / name / "launch"
        return open_live(built, task, folder, timeout_s=timeout_s, stall_s=stall_s, cancel=cancel)

    return start  # type: ignore[return-value]


def out(tmp_path: Path, name: str = "a") -> Path:
    return tmp_path / name / "launch" / "out"


def samples(tmp_path: Path, name: str = "a") -> dict[str, Any]:
    with np.load(out(tmp_path, name) / "samples.npz") as archive:
        return dict(archive)


def reason(result: Result) -> tuple[State, str, str]:
    assert result.reason is not None
    return result.state, result.reason.code, result.reason.text


def timed(live: Live, slices: int = 1, wanted: int = 3) -> Result:
    assert live.wait_ready()
    for _ in range(slices):
        assert live.run(wanted) is not None
    return live.finish()


# Turns


def test_two_halves_take_turns_and_no_sample_of_one_overlaps_a_sample_of_the_other(
    half: Callable[..., Any], tmp_path: Path
) -> None:
    with half(name="a") as a, half(name="b") as b:
        assert a.wait_ready()
        assert b.wait_ready()
        for live in (a, b, b, a, b, a, a, b):
            assert live.run(4) > 0.004
        results = [a.finish(), b.finish()]
    assert [result.state for result in results] == [State.OK, State.OK]
    slices = []
    for name in "ab":
        found = samples(tmp_path, name)
        assert found["slice"].tolist() == [n for n in range(4) for _ in range(4)]
        ends = found["start_ns"] + found["wall_ns"]
        for number in range(4):
            mine = found["slice"] == number
            slices.append((int(found["start_ns"][mine].min()), int(ends[mine].max()), name))
    slices.sort()
    assert "".join(name for _, _, name in slices) == "abbabaab"
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(slices))


def test_a_half_leaves_the_result_of_a_measurement(half: Callable[..., Any], tmp_path: Path) -> None:
    with half() as live:
        result = timed(live, slices=2, wanted=5)
    assert result.state is State.OK
    assert result.sampling["layout"] == "live-pair"
    assert (result.sampling["slices"], result.sampling["samples"], result.sampling["dropped"]) == (2, 8, 2)
    assert {"import_s", "load_s", "first_call_ms", "latency_ms", "cpu_time_ms"} <= result.metrics.keys()
    assert 1 <= result.metrics["latency_ms"] < 100
    assert 5e6 < result.metrics["peak_memory_bytes"] < 1e9
    assert "live process" in result.sampling["peak_memory_method"]
    assert "energy_j_per_item" in result.absent
    assert result.probes["before"]
    assert result.probes["after"]
    assert result.outputs["y"].shape == (4,)
    assert (out(tmp_path) / "outputs.npz").exists()
    shaken = result.probes["orchestrator"]["environment"]["shaken"]
    assert 0 <= int(shaken["padding_bytes"]) <= 4095
    assert int(shaken["hash_seed"]) > 0


def test_every_process_has_its_own_hash_seed_and_padding(half: Callable[..., Any]) -> None:
    change = """
    class Runner(BaseRunner):
        def effective(self):
            padding = len(os.environ["FRAMEWORK_MATRIX_PADDING"])
            return super().effective() | {"hash": hash("x"), "padding": padding}
    """
    with half(change, name="a") as a, half(change, name="b") as b:
        results = [timed(a), timed(b)]
    one, two = (result.effective for result in results)
    assert one["hash"] != two["hash"]
    for result in results:
        noted = result.probes["orchestrator"]["environment"]["shaken"]["padding_bytes"]
        assert int(noted) == result.effective["padding"]


def test_the_first_sample_of_every_slice_counts_for_nothing(half: Callable[..., Any]) -> None:
    # 4 calls before the first slice: every odd call from the 5th on is the first sample of a slice.
    change = """
    class Runner(BaseRunner):
        def work(self): time.sleep(0.05 if self.calls > 4 and self.calls % 2 else 0.001)
    """
    with half(change) as live:
        result = timed(live, slices=3, wanted=2)
    assert result.metrics["latency_ms"] < 25
    assert result.sampling["dropped"] == 3


def test_a_slice_of_one_sample_keeps_it(half: Callable[..., Any], tmp_path: Path) -> None:
    with half() as live:
        result = timed(live, slices=4, wanted=1)
    assert (result.sampling["slices"], result.sampling["samples"], result.sampling["dropped"]) == (4, 4, 0)
    assert samples(tmp_path)["slice"].tolist() == [0, 1, 2, 3]


COUNTING = """
class Runner(BaseRunner):
    def effective(self): return super().effective() | {"calls": self.calls}
"""


def test_what_is_frozen_is_kept_to_exactly(half: Callable[..., Any], tmp_path: Path) -> None:
    with half(COUNTING, options={"warmup_calls": 7, "calls": 5}) as live:
        result = timed(live, slices=2, wanted=3)
    assert result.effective["calls"] == 1 + 7 + 2 * 3 * 5
    assert result.sampling["warmup_calls"] == 7
    assert result.sampling["calls_per_sample"] == 5
    assert samples(tmp_path)["calls"].tolist() == [5] * 6
    assert "warmup_ns" not in samples(tmp_path)


def test_calls_a_sample_are_calibrated_where_nothing_is_frozen(half: Callable[..., Any]) -> None:
    change = "class Runner(BaseRunner):\n    def work(self): pass\n"
    with half(change, options={}) as live:
        result = timed(live, slices=2, wanted=3)
    assert result.sampling["calls_per_sample"] > 10
    assert result.metrics["latency_ms"] < 0.2


def test_a_pilot_keeps_the_time_of_every_call_of_its_warm_up(
    half: Callable[..., Any], tmp_path: Path
) -> None:
    change = """
    class Runner(BaseRunner):
        def work(self): time.sleep(0.03 if self.calls <= 6 else 0.001)
    """
    with half(change, options={"pilot": {"calls": 20, "seconds": 30}}) as live:
        result = timed(live)
    series = samples(tmp_path)["warmup_ns"]
    assert (series.dtype, series.shape) == (np.int64, (20,))
    assert (series[:5] >= 30_000_000).all()  # the first call was the one before
    assert np.median(series[5:]) < 15_000_000
    assert result.sampling["warmup_calls"] == 20
    assert result.sampling["pilot"]
    assert result.sampling["calls_per_sample"] == 1


def test_a_pilot_ends_after_its_seconds_but_never_below_three_calls(
    half: Callable[..., Any], tmp_path: Path
) -> None:
    change = "class Runner(BaseRunner):\n    def work(self): time.sleep(0.02)\n"
    with half(change, options={"pilot": {"calls": 200, "seconds": 0.01}}) as live:
        assert timed(live).sampling["warmup_calls"] == 3
    assert len(samples(tmp_path)["warmup_ns"]) == 3


def test_a_frozen_warm_up_that_takes_far_too_long_is_cut_and_flagged(half: Callable[..., Any]) -> None:
    change = "class Runner(BaseRunner):\n    def work(self): time.sleep(0.01)\n"
    with half(change, options={"warmup_calls": 10_000}, measure=Measure(max_warmup_s=0.01)) as live:
        result = timed(live)
    assert [flag.code for flag in result.flags if flag.code == "short_warmup"]
    assert 1 <= result.sampling["warmup_calls"] <= 10


def test_a_half_that_is_told_to_quit_before_its_first_slice_still_says_whether_it_works(
    half: Callable[..., Any],
) -> None:
    with half() as live:
        assert live.wait_ready()
        result = live.finish()
    assert result.state is State.OK
    assert result.sampling["unasked"]
    assert result.metrics["latency_ms"] > 0


def test_a_half_that_was_asked_is_not_called_unasked(half: Callable[..., Any]) -> None:
    with half() as live:
        assert not timed(live).sampling["unasked"]


def test_the_null_adapter_takes_turns_too(tmp_path: Path) -> None:
    built = ToyHalf(tmp_path / "null")
    task = built.task({}, adapter="matrix_adapters.null", framework="null", inputs=None)
    with open_live(built, task, tmp_path / "launch", timeout_s=60, stall_s=30) as live:
        result = timed(live, slices=4, wanted=10)
    assert result.state is State.OK
    assert result.sampling["slices"] == 4


# What must not disturb it


def test_whatever_a_framework_prints_or_reads_the_turns_are_unharmed(
    half: Callable[..., Any], tmp_path: Path
) -> None:
    change = """
    class Runner(BaseRunner):
        def work(self):
            print("done")
            sys.stdout.flush()
            os.write(1, b"done\\nready\\n")
            os.write(2, b"native chatter\\n")
            subprocess.run(["sh", "-c", "echo done; cat; cat /dev/stdin"], check=True)
            assert sys.stdin.read() == ""
            assert "FRAMEWORK_MATRIX_ANSWERS" not in os.environ
    """
    with half(change) as a, half(change, name="b") as b:
        assert a.wait_ready()
        assert b.wait_ready()
        for live in (a, b, b, a):
            assert live.run(2) is not None
        results = [a.finish(), b.finish()]
    assert [result.state for result in results] == [State.OK, State.OK]
    log = (out(tmp_path) / "log.txt").read_text()
    assert log.count("native chatter") == 1 + 3 + 2 * 2


def test_a_parked_half_is_not_taken_for_hung(half: Callable[..., Any]) -> None:
    with half(stall_s=2.0) as live:
        assert live.wait_ready()
        assert live.run(2) is not None
        time.sleep(3.5)
        assert live.run(2) is not None
        time.sleep(2.5)
        assert live.finish().state is State.OK


def test_a_parked_half_says_so_and_uses_no_processor(half: Callable[..., Any], tmp_path: Path) -> None:
    with half() as live:
        assert live.wait_ready()
        assert live.run(2) is not None
        time.sleep(1.5)
        assert json.loads((out(tmp_path) / "heartbeat.json").read_text())["phase"] == "parked"
        assert live.wait_ready()  # asked again, it is as ready as before
        (worker,) = _workers(tmp_path)
        before = sum(worker.cpu_times()[:2])
        time.sleep(1.0)
        assert sum(worker.cpu_times()[:2]) - before <= 0.02
        assert live.finish().state is State.OK


# Every way it can end


def test_a_death_in_a_slice_ends_that_half_at_once_and_the_other_one_goes_on(
    half: Callable[..., Any],
) -> None:
    change = """
    class Runner(BaseRunner):
        def work(self):
            if self.calls == 9: os.kill(os.getpid(), signal.SIGKILL)
    """
    with half(change, name="a") as a, half(name="b") as b:
        assert a.wait_ready()
        assert b.wait_ready()
        assert a.run(3) is not None
        began = time.monotonic()
        assert a.run(3) is None
        assert time.monotonic() - began < 5
        assert a.run(3) is None
        assert not a.wait_ready()
        assert b.run(3) is not None
        results = [a.finish(), b.finish()]
    assert reason(results[0])[:2] == (State.FAILED, "killed")
    assert "SIGKILL during slices" in reason(results[0])[2]
    assert results[1].state is State.OK


@pytest.mark.parametrize(
    ("what", "state", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", State.FAILED, "crash"),
        ("os._exit(3)", State.FAILED, "exit_status"),
        ("raise RuntimeError('no such kernel')", State.FAILED, "slices_failed"),
        ("raise MemoryError", State.OOM, "framework_oom"),
        ("feed['x'][0] = 77", State.FAILED, "inputs_changed"),
    ],
)
def test_how_a_slice_ends_is_classified_as_in_any_launch(
    half: Callable[..., Any], what: str, state: State, code: str
) -> None:
    change = f"""
    class Runner(BaseRunner):
        def run(self, feed):
            self.calls += 1
            if self.calls > 6:
                {what}
            return feed["x"] * 2
    """
    with half(change) as live:
        assert live.wait_ready()
        ended = live.run(6)
        result = live.finish()
    assert reason(result)[:2] == (state, code)
    assert (ended is None) == (code != "inputs_changed")  # that one is only seen at the end


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("class Adapter(BaseAdapter):\n    def start(self): import nowhere_to_be_found", "missing_module"),
        ("class Adapter(BaseAdapter):\n    def start(self): os.kill(os.getpid(), signal.SIGILL)", "crash"),
    ],
)
def test_a_half_that_never_gets_ready_says_why(half: Callable[..., Any], change: str, code: str) -> None:
    with half(change) as live:
        assert not live.wait_ready()
        assert live.run(3) is None
        assert reason(live.finish())[1] == code


def test_a_half_that_hangs_in_a_slice_is_stopped(half: Callable[..., Any]) -> None:
    change = """
    class Runner(BaseRunner):
        def work(self):
            if self.calls == 5: time.sleep(600)
    """
    with half(change, stall_s=2.0) as live:
        assert live.wait_ready()
        assert live.run(3) is None
        state, code, text = reason(live.finish())
    assert (state, code) == (State.TIMEOUT, "no_sign_of_life")
    assert "during slices" in text


def test_the_time_allowed_is_for_its_whole_life(half: Callable[..., Any]) -> None:
    with half("class Adapter(BaseAdapter):\n    def start(self): time.sleep(600)", timeout_s=1.5) as live:
        began = time.monotonic()
        assert not live.wait_ready()
        assert time.monotonic() - began < 20
        assert reason(live.finish())[:2] == (State.TIMEOUT, "deadline")


def test_a_stop_request_ends_a_slice_at_once(half: Callable[..., Any]) -> None:
    cancel = Cancel()
    change = """
    class Runner(BaseRunner):
        def work(self):
            if self.calls > 4: time.sleep(600)
    """
    with half(change, cancel=cancel, name="a") as a, half(cancel=cancel, name="b") as b:
        assert a.wait_ready()
        assert b.wait_ready()
        threading.Timer(0.3, cancel.set).start()
        began = time.monotonic()
        assert a.run(3) is None
        results = [a.finish(), b.finish()]
        assert time.monotonic() - began < 20
    cancel.close()
    assert [reason(result)[:2] for result in results] == [(State.INTERRUPTED, "interrupted")] * 2


def test_an_interpreter_that_is_gone_is_a_reason(tmp_path: Path) -> None:
    class Gone(ToyHalf):
        def command(self, in_dir: Path, out_dir: Path) -> list[str]:
            return ["/nowhere/python"]

    built = Gone(tmp_path / "a")
    with open_live(built, built.task(), tmp_path / "launch", timeout_s=5, stall_s=5) as live:
        assert not live.wait_ready()
        assert live.run(1) is None
        assert reason(live.finish())[:2] == (State.FAILED, "cannot_start")


@LINUX
def test_leaving_a_half_in_the_middle_kills_it(half: Callable[..., Any], tmp_path: Path) -> None:
    with half() as live:
        assert live.wait_ready()
        (worker,) = _workers(tmp_path)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


# Words


@pytest.mark.parametrize(
    "line", ["walk 3", "run", "run 0", "run -1", "run 1.5", "run 3 4", "", "RUN 3", "x" * 99]
)
def test_a_word_that_it_does_not_know_ends_it_with_a_result_that_says_so(tmp_path: Path, line: str) -> None:
    built = ToyHalf(tmp_path / "a")
    with LocalWorker(
        built, built.task(), tmp_path / "launch", timeout_s=60, stall_s=30, talking=True
    ) as worker:
        assert worker.hear("ready")
        worker.say(line)
        assert not worker.hear("done")
        state, code, text = reason(worker.conclude())
    assert (state, code) == (State.FAILED, "unknown_word")
    assert line[:20] in text


def test_an_answer_that_is_none_stops_it(tmp_path: Path) -> None:
    class Babbler(ToyHalf):
        def command(self, in_dir: Path, out_dir: Path) -> list[str]:
            code = "import os, time; os.write(int(os.environ['FRAMEWORK_MATRIX_ANSWERS']), b'hello\\n')"
            return [sys.executable, "-c", f"{code}; time.sleep(600)"]

    built = Babbler(tmp_path / "a")
    with open_live(built, built.task(), tmp_path / "launch", timeout_s=60, stall_s=30) as live:
        assert not live.wait_ready()
        assert reason(live.finish())[:2] == (State.FAILED, "wrong_answer")


def test_a_half_that_nobody_speaks_to_is_refused(tmp_path: Path) -> None:
    built = ToyHalf(tmp_path / "a")
    result = run_worker(built, built.task(), tmp_path / "launch", timeout_s=60, stall_s=30)
    assert reason(result)[:2] == (State.FAILED, "unknown_word")


@pytest.mark.parametrize("options", [{"warmup": 3}, {"calls": "many"}, {"pilot": {"turns": 3}}, {"pilot": 3}])
def test_an_option_that_it_does_not_know_is_named(half: Callable[..., Any], options: dict[str, Any]) -> None:
    with half(options=options) as live:
        assert not live.wait_ready()
        assert "SliceOptions" in reason(live.finish())[2]


def test_when_the_orchestrator_goes_without_a_word_the_worker_ends_and_says_so(tmp_path: Path) -> None:
    built = ToyHalf(tmp_path / "a")
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in/task.json").write_text(to_json(built.task()))
    read, write = os.pipe()
    worker = subprocess.Popen(
        built.command(tmp_path / "in", tmp_path / "out"),
        env={**built.environ(), "FRAMEWORK_MATRIX_ANSWERS": str(write)},
        stdin=subprocess.PIPE,
        pass_fds=[write],
    )
    os.close(write)
    assert os.read(read, 100) == b"ready\n"
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(30) == 0
    os.close(read)
    result = from_json(Result, (tmp_path / "out/result.json").read_text())
    assert reason(result)[:2] == (State.INTERRUPTED, "orchestrator_gone")


@LINUX
def test_an_orchestrator_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    code = f"""
import sys, time
sys.path[:0] = [{str(Path(__file__).parents[1])!r}, {str(ADAPTERS)!r}]
from pathlib import Path
from live_toys import ToyHalf
from matrix.execution.live import open_live
folder = Path({str(tmp_path)!r})
slow = "class Runner(BaseRunner):\\n    def work(self): time.sleep(0.02)"
a, b = ToyHalf(folder / "a", slow), ToyHalf(folder / "b", slow)
with open_live(a, a.task(), folder / "a/launch", timeout_s=99, stall_s=99) as one:
    with open_live(b, b.task(), folder / "b/launch", timeout_s=99, stall_s=99) as two:
        print(one.wait_ready(), two.wait_ready(), flush=True)
        one.run(10_000)
"""
    orchestrator = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert orchestrator.stdout is not None
    assert orchestrator.stdout.readline() == b"True True\n"
    workers = _workers(tmp_path)
    assert len(workers) == 2
    orchestrator.send_signal(signal.SIGKILL)
    orchestrator.communicate()
    gone, alive = psutil.wait_procs(workers, timeout=20)
    assert len(gone) == 2, alive


def _workers(folder: Path) -> list[psutil.Process]:
    """Worker processes that run below `folder` now."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "matrix_adapters.worker" in words and any(word.startswith(str(folder)) for word in words):
            found.append(process)
    return found
