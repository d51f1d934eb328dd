"""Correctness batches with real worker processes: what a case does to its process costs that case only."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_operators
from toy_operators import ToyChecks

from matrix.errors import ExitCode
from matrix.execution.dispatch import run_task as run_anywhere
from matrix.sweep import checking
from matrix_adapters.protocol import Reason, Result, State, Task

PACKAGES = Path(toy_operators.__file__).resolve().parent


def started(sweep: ToyChecks) -> list[str]:
    return [line for line in sweep.checked() if not line.startswith("batch")]


def batches(sweep: ToyChecks) -> list[str]:
    return [line for line in sweep.checked() if line.startswith("batch")]


def test_one_process_checks_all_cases_of_an_environment(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Good/b", "Wrong/a", "Unsupported/a", "Raise/a"])
    outcome = sweep.run()
    assert outcome.exit_code is ExitCode.VERDICT
    assert sweep.states() == {
        "Good/a": State.OK,
        "Good/b": State.OK,
        "Wrong/a": State.INCORRECT,
        "Unsupported/a": State.UNSUPPORTED,
        "Raise/a": State.FAILED,
    }
    assert batches(sweep) == ["batch 5"]


def test_a_right_case_has_its_error_its_versions_and_nothing_that_was_not_measured(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a"])
    assert sweep.run().exit_code is ExitCode.OK
    record = sweep.records()["Good/a"]
    assert record.parity is not None
    assert record.parity.passed
    assert {name: value.value for name, value in record.metrics.items()} == {
        "max_scaled_error": 0,
        "max_ulps": 0,
    }
    assert record.absent == {}
    assert record.artefacts == {"inputs": "i" * 64, "onnx": "o" * 64}
    assert record.versions["toy"] == "1.0"
    assert [launch.purpose for launch in record.launches] == ["check"]


def test_a_wrong_case_says_where_and_keeps_its_outputs(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Wrong/a"])
    sweep.run()
    record = sweep.records()["Wrong/a"]
    assert record.reason is not None
    assert record.reason.code == "tolerance"
    assert "Y[0]" in record.reason.text
    assert record.metrics["max_ulps"].value > 1
    kept = sweep.stored().folder / "samples" / record.id / "check-outputs.npz"
    np.testing.assert_array_equal(np.load(kept)["Y"], [3, 5, 7, 9])


def test_a_swallowed_nan_is_incorrect(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Swallow/a", "Good/a"])
    sweep.run()
    assert sweep.states() == {"Swallow/a": State.INCORRECT, "Good/a": State.OK}
    reason = sweep.records()["Swallow/a"].reason
    assert reason is not None
    assert reason.code == "non_finite"


def test_where_the_standard_leaves_it_open_another_answer_is_no_failure_and_is_shown(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Open/a"])
    assert sweep.run().exit_code is ExitCode.OK
    record = sweep.records()["Open/a"]
    assert record.state is State.OK
    (flag,) = record.flags
    assert flag.code == "differs_by_definition"
    assert "the standard says nothing" in flag.text
    shown = record.launches[0].outputs["Y"]
    assert [float(v) for v in shown["values"]] == [3, 5, 7, 9]
    assert [float(v) for v in shown["reference"]] == [2, 4, 6, 8]


@pytest.mark.parametrize("dead", ["Crash/a", "Killed/a"])
def test_a_case_that_kills_the_process_costs_itself_only(tmp_path: Path, dead: str) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", dead, "Good/b", "Good/c"])
    sweep.run()
    assert sweep.states() == {
        "Good/a": State.OK,
        dead: State.FAILED,
        "Good/b": State.OK,
        "Good/c": State.OK,
    }
    assert batches(sweep) == ["batch 4", "batch 2"]
    assert started(sweep) == ["Good/a", dead, "Good/b", "Good/c"]
    reason = sweep.records()[dead].reason
    assert reason is not None
    assert reason.code == {"Crash/a": "crash", "Killed/a": "killed"}[dead]


def test_cases_that_kill_one_after_the_other_each_cost_themselves(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Crash/a", "Crash/b", "Good/a", "Crash/c"])
    sweep.run()
    assert list(sweep.states().values()) == [
        State.FAILED,
        State.FAILED,
        State.OK,
        State.FAILED,
    ]
    assert started(sweep) == ["Crash/a", "Crash/b", "Good/a", "Crash/c"]


def test_a_process_that_dies_in_every_first_case_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "MOST_FRUITLESS", 2)
    sweep = ToyChecks(tmp_path, cases=["Crash/a", "Crash/b", "Good/a", "Good/b"])
    sweep.run()
    records = sweep.records()
    codes = [record.reason.code if record.reason else "" for record in records.values()]
    assert codes == ["crash", "crash", "gave_up", "gave_up"]
    (sweep.bundle / "healed").touch()
    sweep.resume()
    assert sweep.states() == {
        "Crash/a": State.FAILED,
        "Crash/b": State.FAILED,
        "Good/a": State.OK,
        "Good/b": State.OK,
    }


@pytest.mark.parametrize(
    ("variant", "state", "code"),
    [("nodevice", State.UNAVAILABLE, "unavailable"), ("deadborn", State.FAILED, "crash")],
)
def test_a_process_that_ends_before_its_first_case_is_not_started_again(
    tmp_path: Path, variant: str, state: State, code: str
) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Good/b"], variants=[variant])
    sweep.run()
    assert set(sweep.states().values()) == {state}
    assert {r.reason.code for r in sweep.records().values() if r.reason} == {code}
    assert batches(sweep) == ["batch 2"]


def test_a_case_that_dies_while_it_is_closed_is_charged(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Late/a", "Good/a"])
    sweep.run()
    assert sweep.states() == {"Late/a": State.FAILED, "Good/a": State.OK}


def test_a_death_between_two_cases_is_charged_to_nobody(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Good/b"])

    def dies_after_the_first(built: Any, task: Task, folder: Path, **options: Any) -> Result:
        if len(task.options["cases"]) == 1:
            return run_anywhere(built, task, folder, **options)
        only = dataclasses.replace(task, options={**task.options, "cases": task.options["cases"][:1]})
        run_anywhere(built, only, folder, **options)
        return Result(state=State.FAILED, reason=Reason(code="crash", text="planted"))

    assert sweep.run(run_task=dies_after_the_first).exit_code is ExitCode.OK
    assert batches(sweep) == ["batch 1", "batch 1"]


def test_what_was_crowded_out_by_another_process_is_tried_again_alone(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Good/b"], frameworks=["one", "two"])
    asked: list[tuple[str, int]] = []

    def too_much_for_two(built: Any, task: Task, folder: Path, **options: Any) -> Result:
        asked.append((task.framework, len(task.options["cases"])))
        if task.framework == "two" and len(asked) <= 2:
            (folder / "out").mkdir(exist_ok=True)
            (folder / "out" / "cases.jsonl").write_text('{"case": 0, "begin": true}\n')
            return Result(state=State.OOM, reason=Reason(code="oom_kill", text="planted"))
        return run_anywhere(built, task, folder, **options)

    assert sweep.run(run_task=too_much_for_two).exit_code is ExitCode.OK
    assert asked[-1] == ("two", 1), "the case in hand, when nothing else runs"
    retried = [r for r in sweep.all_records() if r.environment.framework == "two" and r.attempts == 2]
    assert [r.workload.subject for r in retried] == ["Good/a"]


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        '{"case": 99}',
        '{"case": "0"}',
        '{"case": 0, "state": "marvellous"}',
        '{"case": 0, "state": "ok", "outputs": []}',
    ],
)
def test_nonsense_in_the_lines_of_a_worker_fails_the_case_and_nothing_else(tmp_path: Path, line: str) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a"])

    def writes_nonsense(*args: Any, **_: Any) -> Result:
        (args[2] / "out").mkdir(exist_ok=True)
        (args[2] / "out" / "cases.jsonl").write_text(f"{line}\n" + '{"torn": ')
        return Result(state=State.OK)

    assert sweep.run(run_task=writes_nonsense).exit_code is ExitCode.VERDICT
    assert set(sweep.states().values()) == {State.FAILED}


def test_outputs_that_cannot_be_read_fail_the_case(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a"])

    def breaks_them(*args: Any, **options: Any) -> Result:
        result = run_anywhere(*args, **options)
        (args[2] / "out" / "0.npz").write_bytes(b"PK but no archive")
        return result

    def reads_at_the_end(*_: Any, **__: Any) -> None:
        """As from a container: lines and outputs come together."""
        time.sleep(0.02)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking.Checks, "_wait", reads_at_the_end)
        sweep.run(run_task=breaks_them)
    reason = sweep.records()["Good/a"].reason
    assert reason is not None
    assert reason.code == "not_judged"


def test_a_case_that_never_ends_costs_the_time_of_one_launch(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Spin/a", "Good/b"], timeout_s=4)
    sweep.run()
    assert sweep.states() == {"Good/a": State.OK, "Spin/a": State.TIMEOUT, "Good/b": State.OK}
    reason = sweep.records()["Spin/a"].reason
    assert reason is not None
    assert reason.code == "deadline"


def test_a_case_without_an_oracle_is_reported_and_not_run(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Unmade/a", "Good/a"])
    sweep.run()
    assert sweep.states() == {"Unmade/a": State.FAILED, "Good/a": State.OK}
    reason = sweep.records()["Unmade/a"].reason
    assert reason is not None
    assert reason.code == "no_oracle"
    assert started(sweep) == ["Good/a"]


def test_every_environment_and_variant_has_a_process_of_its_own(tmp_path: Path) -> None:
    sweep = ToyChecks(
        tmp_path, cases=["Good/a", "Good/b"], frameworks=["one", "two"], variants=["eager", "compile"]
    )
    assert sweep.run().exit_code is ExitCode.OK
    assert batches(sweep) == ["batch 2"] * 4
    assert len(sweep.cells) == 8
    assert sweep.oracle.asked == ["Good/a", "Good/b"], "the files are shared"


def test_types_of_one_case_are_cells_of_their_own(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a"], dtypes=["float32", "float16", "int32"])
    assert sweep.run().exit_code is ExitCode.OK
    assert [cell.workload.precision for cell in sweep.cells] == ["fp32", "fp16", "int32"]
    assert batches(sweep) == ["batch 3"]


def test_a_finished_run_repeats_nothing(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Wrong/a", "Crash/a", "Unsupported/a"])
    sweep.run()
    before = sweep.checked()
    sweep.resume()
    assert sweep.checked() == before


def test_ctrl_c_keeps_what_has_ended_and_resume_goes_on_after_it(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Hang/a", "Good/b"])
    process = _orchestrator(tmp_path)
    _wait_for((sweep.bundle / "hanging").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == ExitCode.INTERRUPTED
    assert sweep.states() == {
        "Good/a": State.OK,
        "Hang/a": State.INTERRUPTED,
        "Good/b": State.NOT_RUN,
    }
    (sweep.bundle / "healed").touch()
    sweep.resume()
    assert set(sweep.states().values()) == {State.OK}
    assert started(sweep) == ["Good/a", "Hang/a", "Hang/a", "Good/b"]


def test_kill_9_of_the_orchestrator_loses_nothing_that_had_ended(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Wrong/a", "Hang/a", "Good/b"])
    process = _orchestrator(tmp_path)
    _wait_for((sweep.bundle / "hanging").exists)
    _wait_for(lambda: sweep.states()["Wrong/a"] is State.INCORRECT)
    process.kill()
    process.wait(60)
    (sweep.bundle / "healed").touch()
    sweep.resume()
    assert sweep.states() == {
        "Good/a": State.OK,
        "Wrong/a": State.INCORRECT,
        "Hang/a": State.OK,
        "Good/b": State.OK,
    }
    assert started(sweep) == ["Good/a", "Wrong/a", "Hang/a", "Hang/a", "Good/b"]


def test_a_spent_budget_ends_a_batch_and_leaves_the_rest_not_run(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Hang/a", "Good/b"])
    outcome = sweep.run(budget_s=6)
    assert outcome.outcome == "budget_spent"
    states = sweep.states()
    assert states["Hang/a"] is State.NOT_RUN
    assert states["Good/b"] is State.NOT_RUN


def test_an_environment_that_was_taken_away_gets_one_more_attempt(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Good/b"])
    calls = []

    def once_lost(*args: object, **options: object) -> Result:
        calls.append(args)
        if len(calls) == 1:
            reason = Reason(code="container_removed", text="somebody removed it")
            return Result(state=State.FAILED, reason=reason)
        return run_anywhere(*args, **options)  # type: ignore[arg-type]

    assert sweep.run(run_task=once_lost).exit_code is ExitCode.OK
    assert len(calls) == 2


def test_an_environment_that_is_always_taken_away_is_not_tried_for_ever(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Good/b"])
    lost = Result(state=State.FAILED, reason=Reason(code="engine_lost", text="gone"))
    sweep.run(run_task=lambda *_, **__: lost)
    assert {r.reason.code for r in sweep.records().values() if r.reason} == {"engine_lost"}


def test_a_worker_that_says_nothing_of_its_cases_fails_them(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a"])
    sweep.run(run_task=lambda *_, **__: Result(state=State.OK))
    reason = sweep.records()["Good/a"].reason
    assert reason is not None
    assert reason.code == "no_answer"


def test_a_full_disk_breaks_the_run_off_and_resume_goes_on(tmp_path: Path) -> None:
    sweep = ToyChecks(tmp_path, cases=["Good/a", "Good/b"])
    full = Result(state=State.FAILED, reason=Reason(code="disk_full", text="disk full at /somewhere"))
    assert sweep.run(run_task=lambda *_, **__: full).exit_code is ExitCode.INCOMPLETE
    assert sweep.resume().exit_code is ExitCode.OK
    assert set(sweep.states().values()) == {State.OK}


def _orchestrator(folder: Path) -> subprocess.Popen[bytes]:
    root = Path(checking.__file__).resolve().parents[2]
    paths = [PACKAGES, root, root / "adapters"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.Popen([sys.executable, str(PACKAGES / "toy_operators.py"), str(folder)], env=environ)


def _wait_for(condition: object, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():  # type: ignore[operator]
                return
        except Exception:  # the run is being made
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)
