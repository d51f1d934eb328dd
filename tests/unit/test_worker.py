"""The real worker process, driven with toy adapters that each do one thing wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix_adapters import protocol, tensors
from matrix_adapters.process import PARENT_VARIABLE
from matrix_adapters.protocol import (
    ASKED_VARIABLE,
    Heartbeat,
    Measure,
    Result,
    State,
    Task,
    TaskKind,
    from_json,
    to_json,
)

ADAPTERS = Path(protocol.__file__).parents[1]
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")

TOY = """
import ctypes, errno, os, sys, time
import numpy as np
from matrix_adapters.adapter import Unavailable, Unsupported

def spend(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

class BaseAdapter:
    name = "toy"
    environment = {}
    def __init__(self, task): self.task = task
    def start(self): pass
    def probe(self): return {"version": "1.2"}
    def load(self, model, artefacts): return Runner(self.task)

class BaseRunner:
    def __init__(self, task): self.task, self.calls = task, 0
    def prepare(self, feed): return feed
    def compile(self, feed): return False
    def run(self, feed):
        self.calls += 1
        return feed["x"] * 2
    def sync(self): pass
    def fetch(self, outputs): return {"y": outputs}
    def effective(self):
        return {"device": "cpu", "threads": self.task.threads, "precision": "fp32", "math_mode": "fp32"}
    def close(self): pass

class Adapter(BaseAdapter): pass
class Runner(BaseRunner): pass
"""
QUICK = Measure(samples=5, max_steady_s=2.0, warmup_calls=2)


class Lab:
    """A folder with a toy adapter, and workers that run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self._started: list[subprocess.Popen[bytes]] = []
        for name in ("in", "out", "toys"):
            (folder / name).mkdir()

    def prepare(self, change: str, **fields: Any) -> None:
        """Write the toy (the plain one plus `change`) and the task."""
        toy = TOY + textwrap.dedent(change)
        (self.folder / "toys/toy.py").write_text(toy)
        values = {"kind": TaskKind.MEASURE, "framework": "toy", "adapter": "toy", "measure": QUICK, **fields}
        if "inputs" not in values:
            tensors.save(self.folder / "in/inputs.npz", {"x": np.arange(4, dtype=np.float32)})
            values["inputs"] = "inputs.npz"
        (self.folder / "in/task.json").write_text(to_json(Task(**values)))

    def command(self) -> list[str]:
        worker = [sys.executable, "-P", "-m", "matrix_adapters.worker"]
        return [*worker, str(self.folder / "in"), str(self.out)]

    def environ(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join([str(ADAPTERS), str(self.folder / "toys")])
        return {**os.environ, "PYTHONPATH": path, **more}

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        def heed_ctrl_c() -> None:  # a shell's background jobs, these tests perhaps, are begun deaf to it
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        worker = subprocess.Popen(
            self.command(),
            env=self.environ(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=heed_ctrl_c,  # noqa: PLW1509 (the tests have no threads of their own)
        )
        self._started.append(worker)
        return worker

    def measure(self, change: str = "", environ: dict[str, str] | None = None, **fields: Any) -> Result:
        """Run one launch to its end; the worker must exit with 0, silently, and leave a result."""
        self.prepare(change, **fields)
        worker = self.start(**(environ or {}))
        printed, _ = worker.communicate(timeout=60)
        assert worker.returncode == 0, self.log()
        assert printed == b"", "what is printed goes to the log"
        return self.result()

    def result(self) -> Result:
        return from_json(Result, (self.out / "result.json").read_text())

    def log(self) -> str:
        path = self.out / "log.txt"
        return path.read_text() if path.exists() else ""

    def heartbeat(self) -> Heartbeat | None:
        with contextlib.suppress(FileNotFoundError):
            return from_json(Heartbeat, (self.out / "heartbeat.json").read_text())
        return None

    def phase(self) -> str:
        beat = self.heartbeat()
        return beat.phase if beat else ""

    def close(self) -> None:
        for worker in self._started:
            worker.kill()
            worker.communicate()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.close()


def wait_until(true: Callable[[], bool], timeout: float = 30.0) -> None:
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


BUSY = {"overhead", "outlier", "not_stationary", "late_compile", "contended", "stolen", "throttled"}


def codes(result: Result) -> set[str]:
    """Flags but for those that a busy machine or a tiny call may raise by itself."""
    return {flag.code for flag in result.flags} - BUSY


def text_of(result: Result, code: str) -> str:
    return next(flag.text for flag in result.flags if flag.code == code)


# The launch that goes well


def test_a_good_launch_leaves_phases_metrics_samples_outputs_and_facts(lab: Lab) -> None:
    result = lab.measure()
    assert result.state is State.OK
    assert result.reason is None
    assert set(result.phases) == {"import_s", "load_s", "compile_s", "first_call_s", "warmup_s", "steady_s"}
    assert set(result.metrics) == {"import_s", "load_s", "first_call_ms", "latency_ms", "cpu_time_ms"}
    assert all(value > 0 for value in result.metrics.values())
    assert "compile_s" in result.absent
    assert result.versions["toy"] == "1.2"
    assert result.versions["numpy"] == np.__version__
    assert result.artefacts["inputs"]["x"]["dtype"] == "float32"
    assert {"before", "after", "machine", "framework", "libraries"} <= set(result.probes)
    assert result.started < result.ended
    assert codes(result) == set()
    assert lab.phase() == "check"


def test_samples_are_totals_with_the_number_of_calls_beside_them(lab: Lab) -> None:
    result = lab.measure()
    samples = tensors.load(lab.out / "samples.npz")
    assert set(samples) == {"wall_ns", "cpu_ns", "process_ns", "nivcsw", "nvcsw", "calls", "start_ns"}
    assert len(samples["wall_ns"]) == result.sampling["samples"] == 5
    assert (samples["calls"] == result.sampling["calls_per_sample"]).all()
    assert samples["calls"][0] > 1, "calls this short are batched"
    median = float(np.median(samples["wall_ns"] / samples["calls"])) / 1e6
    assert result.metrics["latency_ms"] == pytest.approx(median)


def test_the_outputs_that_are_kept_are_those_that_were_fingerprinted(lab: Lab) -> None:
    result = lab.measure()
    outputs = tensors.load(lab.out / "outputs.npz")
    assert outputs["y"].tolist() == [0, 2, 4, 6]
    assert tensors.fingerprint(outputs["y"]) == result.outputs["y"]


def test_outputs_that_nobody_wants_are_fingerprinted_and_not_kept(lab: Lab) -> None:
    result = lab.measure(keep_outputs=False)
    assert result.outputs["y"].shape == (4,)
    assert not (lab.out / "outputs.npz").exists()


def test_nothing_is_left_beside_the_files_of_the_protocol(lab: Lab) -> None:
    lab.measure()
    names = {path.name for path in lab.out.iterdir()}
    assert names == {"result.json", "samples.npz", "outputs.npz", "heartbeat.json", "log.txt"}


def test_the_null_adapter_shows_the_cost_of_the_loop_itself(lab: Lab) -> None:
    result = lab.measure(adapter="matrix_adapters.null", framework="null", inputs=None)
    assert result.state is State.OK
    assert 0 < result.metrics["latency_ms"] < 0.1
    assert "overhead" in {flag.code for flag in result.flags}
    assert result.sampling["loop_cost_low_ns"] <= result.sampling["loop_cost_ns"]


def test_a_variant_that_compiles_has_a_compile_time(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def compile(self, feed):
                time.sleep(0.05)
                return True
        """
    )
    assert result.metrics["compile_s"] >= 0.05
    assert "compile_s" not in result.absent


def test_printing_frameworks_fill_the_log_and_nothing_else(lab: Lab) -> None:
    lab.measure(
        """
        class Adapter(BaseAdapter):
            def start(self):
                print("chatter")
                os.write(2, b"native chatter")
        """
    )
    assert "chatter" in lab.log()
    assert "native chatter" in lab.log()


# What the clock must see


def test_the_time_of_an_asynchronous_device_is_measured(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def run(self, feed):
                self.done = False
                return feed["x"]
            def sync(self):
                time.sleep(0.02)
                self.done = True
            def fetch(self, outputs):
                assert self.done
                return {"y": outputs}
        """
    )
    assert result.state is State.OK
    assert result.metrics["latency_ms"] >= 20
    assert result.metrics["first_call_ms"] >= 20


def test_a_runner_without_sync_is_refused_before_anything_is_timed(lab: Lab) -> None:
    result = lab.measure("class Runner(BaseRunner):\n    sync = None\n")
    assert (result.state, result.reason.code) == (State.FAILED, "adapter_contract")
    assert "sync" in result.reason.text
    assert "first_call_s" not in result.phases


def test_a_huge_first_call_is_a_number_of_its_own(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def run(self, feed):
                self.calls += 1
                time.sleep(0.6 if self.calls == 1 else 0.005)
                return feed["x"]
        """
    )
    assert result.metrics["first_call_ms"] >= 600
    assert 5 <= result.metrics["latency_ms"] < 300


def test_warm_up_and_samples_get_exactly_the_feed_that_was_prepared(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def prepare(self, feed):
                self.prepared = {"renamed": np.ascontiguousarray(feed["x"][::-1])}
                return self.prepared
            def compile(self, feed):
                assert feed is self.prepared
                return True
            def run(self, feed):
                assert feed is self.prepared
                return feed["renamed"]
        """
    )
    assert result.state is State.OK
    assert tensors.load(lab.out / "outputs.npz")["y"].tolist() == [3, 2, 1, 0]


def test_a_compilation_inside_the_steady_phase_is_flagged(lab: Lab) -> None:
    # 1 first call + 3 warm-up calls of 20 ms, then samples of one call each.
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def run(self, feed):
                self.calls += 1
                spend(0.6 if self.calls == 5 else 0.02)
                return feed["x"]
        """,
        measure=Measure(samples=12, warmup_calls=3, max_steady_s=30.0),
    )
    assert result.sampling["calls_per_sample"] == 1
    assert {"late_compile", "outlier"} & {flag.code for flag in result.flags}


# What was asked is not what was done


def test_cuda_asked_and_cpu_used_is_unavailable_and_has_no_number(lab: Lab) -> None:
    result = lab.measure(device="cuda")
    assert result.state is State.UNAVAILABLE
    assert result.reason.text == "cuda asked, cpu used"
    assert result.metrics == {}
    assert not (lab.out / "samples.npz").exists()


def test_a_device_that_is_lost_during_the_measurement_is_noticed(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def effective(self):
                return {**super().effective(), "device": "cuda" if self.calls < 3 else "cpu"}
        """,
        device="cuda",
    )
    assert result.state is State.UNAVAILABLE
    assert result.metrics == {}


def test_an_adapter_that_does_not_name_the_device_is_refused(lab: Lab) -> None:
    result = lab.measure("class Runner(BaseRunner):\n    def effective(self): return {}\n")
    assert result.reason.code == "adapter_contract"


def test_a_wrong_thread_count_is_a_flag(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def effective(self): return {**super().effective(), "threads": 64}
        """
    )
    assert result.state is State.OK
    assert text_of(result, "threads_differs") == "threads: 1 asked, 64 used"


def test_flags_of_the_adapter_are_carried_once(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def effective(self):
                flag = {"code": "partial_fallback", "text": "1 of 2 nodes on the CPU"}
                return {**super().effective(), "flags": [flag], "odd": float("nan")}
        """
    )
    assert [flag.code for flag in result.flags].count("partial_fallback") == 1
    assert "flags" not in result.effective
    assert result.effective["odd"] == "nan", "JSON has no NaN"


def test_more_threads_than_this_machine_has_are_flagged(lab: Lab) -> None:
    result = lab.measure(threads=4096)
    assert "4096 threads on" in text_of(result, "oversubscribed")


def test_a_profiler_variable_is_flagged(lab: Lab) -> None:
    result = lab.measure(environ={"NVTX_INJECTION64_PATH": "/opt/tool.so"})
    assert "NVTX_INJECTION64_PATH" in text_of(result, "preload")


# What the outputs say


def test_outputs_that_change_between_calls_are_flagged_and_the_timed_ones_kept(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def run(self, feed):
                self.calls += 1
                time.sleep(0.03)
                return feed["x"] + np.float32(self.calls > 1) * 0.5
        """
    )
    assert result.state is State.OK
    assert "max difference 0.5" in text_of(result, "non_deterministic")
    assert tensors.load(lab.out / "outputs.npz")["y"].tolist() == [0.5, 1.5, 2.5, 3.5]


def test_a_framework_that_reuses_its_output_buffer_cannot_hide_a_change(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            buffer = np.zeros(4, np.float32)
            def run(self, feed):
                self.buffer += 1
                return self.buffer
        """
    )
    assert "non_deterministic" in codes(result)


def test_outputs_with_nan_are_counted_and_left_to_the_judge(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def run(self, feed): return np.array([1, np.nan, np.inf], np.float32)
        """
    )
    assert result.state is State.OK
    assert (result.outputs["y"].nan, result.outputs["y"].inf) == (1, 1)
    assert codes(result) == set(), "the same NaN twice is no non-determinism"


def test_text_outputs_are_kept_without_pickle(lab: Lab) -> None:
    lab.measure(
        """
        class Runner(BaseRunner):
            def run(self, feed): return np.array(["a", "bc"], dtype=object)
        """
    )
    assert tensors.load(lab.out / "outputs.npz")["y"].tolist() == ["a", "bc"]


def test_outputs_that_are_no_arrays_break_the_contract(lab: Lab) -> None:
    result = lab.measure("class Runner(BaseRunner):\n    def fetch(self, outputs): return [1, 2]\n")
    assert result.reason.code == "adapter_contract"


def test_inputs_that_a_call_overwrites_end_the_launch(lab: Lab) -> None:
    result = lab.measure(
        """
        class Runner(BaseRunner):
            def run(self, feed):
                feed["x"] += 1
                return feed["x"]
        """
    )
    assert (result.state, result.reason.code) == (State.FAILED, "inputs_changed")
    assert result.metrics == {}


def test_subnormal_inputs_are_flagged(lab: Lab) -> None:
    tensors.save(lab.folder / "in/tiny.npz", {"x": np.array([1e-42, 1.0], np.float32)})
    result = lab.measure(inputs="tiny.npz")
    assert "1 in x" in text_of(result, "subnormals")


@LINUX
def test_memory_that_is_given_back_after_every_call_is_told_by_its_page_faults(lab: Lab) -> None:
    takes_anew = """
        import mmap
        class Runner(BaseRunner):
            def run(self, feed):
                with mmap.mmap(-1, 8 << 20) as fresh:
                    fresh[:: mmap.PAGESIZE] = b"1" * (len(fresh) // mmap.PAGESIZE)
                return feed["x"]
        """
    long_enough = Measure(samples=200, max_steady_s=20.0, warmup_calls=2)
    result = lab.measure(takes_anew, measure=long_enough)
    taken = int(text_of(result, "kernel_time").split()[-5].replace(",", ""))
    assert 1_900 < taken < 2_500, "8 MiB are 2,048 pages"
    computes = (
        "class Runner(BaseRunner):\n    def run(self, feed):\n        spend(2e-3)\n        return feed['x']\n"
    )
    assert "kernel_time" not in codes(lab.measure(computes, measure=long_enough))


# Every way to fail inside Python

STEPS = {
    "import": "class Adapter(BaseAdapter):\n    def start(self): {boom}\n",
    "probe": "class Adapter(BaseAdapter):\n    def probe(self): {boom}\n",
    "load": "class Adapter(BaseAdapter):\n    def load(self, model, artefacts): {boom}\n",
    "prepare": "class Runner(BaseRunner):\n    def prepare(self, feed): {boom}\n",
    "compile": "class Runner(BaseRunner):\n    def compile(self, feed): {boom}\n",
    "first_call": "class Runner(BaseRunner):\n    def run(self, feed): {boom}\n",
    "warmup": """
class Runner(BaseRunner):
    def run(self, feed):
        self.calls += 1
        if self.calls == 2: {boom}
        return feed["x"]
""",
    # 1 first call + 3 warm-up calls of 20 ms; calls this long are not tried for calibration
    "steady": """
class Runner(BaseRunner):
    def run(self, feed):
        self.calls += 1
        if self.calls == 6: {boom}
        time.sleep(0.02)
        return feed["x"]
""",
}


@pytest.mark.parametrize("phase", STEPS)
def test_an_exception_names_the_phase_and_leaves_its_traceback_in_the_log(lab: Lab, phase: str) -> None:
    result = lab.measure(
        STEPS[phase].format(boom='raise ValueError("boom")'), measure=Measure(samples=8, warmup_calls=3)
    )
    assert (result.state, result.reason.code) == (State.FAILED, f"{phase}_failed")
    assert result.reason.text == f"{phase} failed: ValueError: boom"
    assert result.metrics == {}
    assert f"{phase}_s" not in result.phases
    assert "Traceback" in lab.log()
    assert "toy.py" in lab.log()
    assert lab.phase() == phase


@pytest.mark.parametrize(
    ("boom", "state", "code"),
    [
        ('raise Unsupported("no such kernel")', State.UNSUPPORTED, "unsupported"),
        ('raise Unavailable("no device")', State.UNAVAILABLE, "unavailable"),
        ("raise MemoryError", State.OOM, "framework_oom"),
        ("np.empty(1 << 60, np.uint8)", State.OOM, "framework_oom"),
        ('raise type("OutOfMemoryError", (RuntimeError,), {})("20 GiB")', State.OOM, "framework_oom"),
        ('open("/dev/full", "wb", 0).write(b"x")', State.FAILED, "disk_full"),
        ("import no_such_module", State.FAILED, "missing_module"),
        ('raise ImportError("libX.so.1: cannot open shared object file")', State.FAILED, "missing_library"),
        ("sys.exit(3)", State.FAILED, "load_failed"),
        ("raise KeyboardInterrupt", State.INTERRUPTED, "interrupted"),
    ],
)
def test_what_was_raised_decides_the_state(lab: Lab, boom: str, state: State, code: str) -> None:
    result = lab.measure(STEPS["load"].format(boom=boom))
    assert (result.state, result.reason.code) == (state, code)


@pytest.mark.parametrize("content", ["", "{", '{"kind": "measure"}', '{"kind": "dance"}', "[]"])
def test_a_broken_task_is_a_failed_result(lab: Lab, content: str) -> None:
    lab.prepare("")
    (lab.folder / "in/task.json").write_text(content)
    worker = lab.start()
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert (lab.result().state, lab.result().reason.code) == (State.FAILED, "start_failed")


def test_an_adapter_that_does_not_exist_is_a_failed_result(lab: Lab) -> None:
    result = lab.measure(adapter="matrix_adapters.no_such_adapter")
    assert result.reason.code == "missing_module"
    assert "no_such_adapter" in result.reason.text


def test_inputs_that_are_missing_are_a_failed_result(lab: Lab) -> None:
    assert lab.measure(inputs="nowhere.npz").state is State.FAILED


def test_a_wrong_command_line_is_told_and_leaves_no_result(lab: Lab) -> None:
    done = subprocess.run(
        lab.command()[:-1], env=lab.environ(), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "usage" in done.stderr


# Every way to die


def test_an_exit_without_python_leaves_no_result_and_its_own_code(lab: Lab) -> None:
    lab.prepare(STEPS["load"].format(boom="os._exit(7)"))
    worker = lab.start()
    worker.communicate(timeout=60)
    assert worker.returncode == 7
    assert not (lab.out / "result.json").exists()
    assert lab.phase() == "load"


def test_a_segmentation_fault_leaves_its_place_in_the_log(lab: Lab) -> None:
    lab.prepare(STEPS["first_call"].format(boom="ctypes.string_at(0)"))
    worker = lab.start()
    worker.communicate(timeout=60)
    assert worker.returncode == -signal.SIGSEGV
    assert not (lab.out / "result.json").exists()
    assert "Segmentation fault" in lab.log()
    assert "toy.py" in lab.log()
    assert lab.phase() == "first_call"


def test_a_crash_during_teardown_does_not_spoil_a_result_that_was_written(lab: Lab) -> None:
    result = lab.measure(
        """
        class Bomb:
            def __del__(self): os.abort()
        bomb = Bomb()
        """
    )
    assert result.state is State.OK


def test_ctrl_c_is_an_interrupted_result(lab: Lab) -> None:
    lab.prepare(STEPS["load"].format(boom="time.sleep(60)"))
    worker = lab.start()
    wait_until(lambda: lab.phase() == "load")
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert lab.result().state is State.INTERRUPTED


def test_a_slow_phase_keeps_beating(lab: Lab) -> None:
    lab.prepare(STEPS["first_call"].format(boom="time.sleep(60)"))
    lab.start()
    wait_until(lambda: lab.phase() == "first_call")
    first = lab.heartbeat()
    assert first is not None
    wait_until(lambda: (now := lab.heartbeat()) is not None and now.at > first.at)
    assert lab.phase() == "first_call"


def test_a_framework_that_hangs_with_the_interpreters_lock_stops_the_beat(lab: Lab) -> None:
    # PyDLL, unlike CDLL, keeps the lock while the C function runs.
    lab.prepare(STEPS["first_call"].format(boom="ctypes.PyDLL(None).sleep(60)"))
    lab.start()
    wait_until(lambda: lab.phase() == "first_call")
    time.sleep(0.3)
    first = lab.heartbeat()
    time.sleep(2.5)
    assert lab.heartbeat() == first


@LINUX
def test_the_kernel_would_take_the_worker_before_its_parent(lab: Lab) -> None:
    lab.prepare(STEPS["load"].format(boom="time.sleep(60)"))
    worker = lab.start()
    wait_until(lambda: lab.phase() == "load")
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(Path(f"/proc/{worker.pid}/oom_score_adj").read_text()) > own


@LINUX
def test_a_worker_whose_parent_is_killed_is_gone(lab: Lab) -> None:
    lab.prepare(STEPS["load"].format(boom="time.sleep(60)"))
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; w = subprocess.Popen(sys.argv[1:]); print(w.pid, flush=True); w.wait()",
            *lab.command(),
        ],
        env=lab.environ(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    wait_until(lambda: lab.phase() == "load")
    parent.kill()
    parent.communicate()
    wait_until(lambda: not alive(worker), timeout=10)
    assert not (lab.out / "result.json").exists()


@LINUX
def test_a_worker_that_comes_too_late_to_see_its_parent_does_nothing(lab: Lab) -> None:
    lab.prepare("")
    worker = lab.start(**{PARENT_VARIABLE: str(2**22 + 1)})  # larger than any process id
    worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert not (lab.out / "result.json").exists()


def alive(pid: int) -> bool:
    """Whether the process still runs; one that only waits to be reaped is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# Before the framework is imported


def test_nothing_but_the_standard_library_is_loaded_before_the_variables_are_set(lab: Lab) -> None:
    code = "import sys, matrix_adapters.worker; sys.exit('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=lab.environ(), check=False, timeout=60)
    assert done.returncode == 0


def test_thread_variables_are_set_before_numpy_and_the_adapters_own_before_the_framework(lab: Lab) -> None:
    result = lab.measure(
        """
        AT_IMPORT = os.environ["OMP_NUM_THREADS"]
        class Adapter(BaseAdapter):
            environment = {"TOY_SWITCH": "on"}
            def start(self): self.seen = os.environ["TOY_SWITCH"]
            def probe(self): return {"version": "1", "omp": AT_IMPORT, "switch": self.seen}
        """,
        threads=3,
        environ={"OMP_NUM_THREADS": "99"},
    )
    assert result.probes["framework"]["omp"] == "3"
    assert result.probes["framework"]["switch"] == "on"


def test_a_variable_that_was_asked_for_is_never_overridden_in_silence(lab: Lab) -> None:
    toy = """
        class Adapter(BaseAdapter):
            environment = {"TOY_SWITCH": "on"}
            def probe(self): return {"version": "1", "switch": os.environ["TOY_SWITCH"]}
        """
    asked = {ASKED_VARIABLE: "OTHER TOY_SWITCH", "TOY_SWITCH": "off"}
    result = lab.measure(toy, environ=asked)
    assert result.state is State.UNSUPPORTED
    assert result.reason is not None
    assert result.reason.text == ("TOY_SWITCH=off was asked for, but the adapter itself sets TOY_SWITCH=on")
    assert lab.measure(toy, environ={**asked, "TOY_SWITCH": "on"}).state is State.OK


# The other kinds of launch


def test_a_memory_launch_gives_peaks_per_phase_and_no_times(lab: Lab) -> None:
    result = lab.measure(
        """
        class Adapter(BaseAdapter):
            def load(self, model, artefacts):
                np.ones(32 << 20).sum()
                return Runner(self.task)
        """,
        kind=TaskKind.MEMORY,
    )
    assert set(result.metrics) == {"peak_memory_bytes"}
    assert result.metrics["peak_memory_bytes"] > 256 << 20
    assert "peak_device_memory_bytes" in result.absent
    assert not (lab.out / "samples.npz").exists()
    if sys.platform.startswith("linux"):
        peaks = result.sampling["peak_memory_by_phase"]
        assert peaks["load"] > peaks["calls"] + (200 << 20)


def test_a_runner_that_counts_device_memory_is_asked_for_its_peak(lab: Lab) -> None:
    result = lab.measure(
        "class Runner(BaseRunner):\n    def peak_device_memory(self): return 12345\n", kind=TaskKind.MEMORY
    )
    assert result.metrics["peak_device_memory_bytes"] == 12345


def test_a_memory_launch_on_the_wrong_device_has_no_number(lab: Lab) -> None:
    result = lab.measure(kind=TaskKind.MEMORY, device="cuda")
    assert result.state is State.UNAVAILABLE
    assert result.metrics == {}


def test_a_probe_says_what_the_framework_sees_and_what_is_installed(lab: Lab) -> None:
    result = lab.measure(kind=TaskKind.PROBE)
    assert result.state is State.OK
    assert result.probes["framework"] == {"version": "1.2"}
    assert f"numpy=={np.__version__}" in result.probes["distributions"]
    assert result.versions["toy"] == "1.2"


def test_a_probe_that_fails_still_says_what_is_installed(lab: Lab) -> None:
    result = lab.measure(STEPS["import"].format(boom='raise ImportError("broken")'), kind=TaskKind.PROBE)
    assert result.state is State.FAILED
    assert f"numpy=={np.__version__}" in result.probes["distributions"]
