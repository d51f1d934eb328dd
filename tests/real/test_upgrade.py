"""`matrix upgrade` on a toy framework whose versions a test slows exactly where it plants it.

The plants are large: the machine of a test is shared. What is asked of a 5 % change is in the
benchmarks, and in docs/compare.md.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from toys import toyframework

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("upgrade"), pytest.mark.timeout(1800)]

PLANTS: dict[str, dict[str, tuple[str, float]]] = {
    "1.0": {},
    "1.1": {"short": ("spin", 0.6)},
    "1.2": {"short": ("spin", -0.4)},
    "1.3": {"short": ("wrong", 1.0)},
    "1.4": {"short": ("crash", 1.0)},
    "1.5": {"short": ("memory", 60.0), "tiny": ("load", 0.4)},
}


def version(name: str) -> str:
    """Environments are kept by version: what holds another plant is another version."""
    return f"{name}.{zlib.crc32(repr(PLANTS[name]).encode()) % 10_000}"


#: keeps its precision on a busy machine, so that a test need not wait for a calm one
QUICK = ("--metric", "cpu_time_ms")
SHORT = ("--select", 'model == "short"')


@dataclasses.dataclass(frozen=True)
class Shop:
    """Toy wheels, a sweep over two models, and a folder of runs."""

    toys: toyframework.Toys
    sweep: Path
    results: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "matrix", *arguments, "--results", str(self.results)]

    def upgrade(self, old: str, new: str, *more: str) -> tuple[int, dict[str, Any]]:
        """Exit code, and what `--json` said."""
        return self.json("upgrade", "toyframe", version(old), version(new), "-c", str(self.sweep), *more)

    def json(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Of any command that compares."""
        command = self.command(*arguments, "--json")
        done = subprocess.run(command, env=self.toys.environ(), capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("toys")
    toys = toyframework.build(folder, {version(name): plan for name, plan in PLANTS.items()})
    return Shop(toys=toys, sweep=toys.sweep(folder / "sweep", ("tiny", "short")), results=folder / "results")


def rows(comparison: dict[str, Any], metric: str) -> dict[str, dict[str, Any]]:
    """Findings of one metric by model."""
    return {row["workload"].split()[0]: row for row in comparison["cells"] if row["metric"] == metric}


def test_more_work_in_one_workload_is_a_regression_there_and_nowhere_else(shop: Shop) -> None:
    code, found = shop.upgrade("1.0", "1.1", *QUICK, "--name", "spin")
    assert code == 1
    cpu = rows(found, "cpu_time_ms")
    assert cpu["short"]["verdict"] == "regressed"
    assert 0.5 < cpu["short"]["effect"] < 0.7
    assert cpu["tiny"]["verdict"] != "regressed"
    code, found = shop.json("compare", "spin", "--fail-on", "missing")
    assert code == 0
    latency, throughput = rows(found, "latency_ms")["short"], rows(found, "throughput_items_s")["short"]
    assert latency["effect"] > 0.2
    assert throughput["verdict"] == latency["verdict"], "a derived metric follows"
    assert throughput["effect"] == pytest.approx(latency["effect"])
    assert throughput["candidate"] < throughput["base"]
    assert latency["layout"] == "live-pair"


def test_less_work_is_an_improvement_and_no_reason_to_fail(shop: Shop) -> None:
    code, found = shop.upgrade("1.0", "1.2", *SHORT, *QUICK)
    assert code == 0
    row = rows(found, "cpu_time_ms")["short"]
    assert row["verdict"] == "improved"
    assert -0.5 < row["effect"] < -0.3


def test_a_version_against_itself_says_what_could_have_been_detected(shop: Shop) -> None:
    code, found = shop.upgrade("1.0", "1.0", *SHORT, *QUICK, "--name", "itself")
    assert code == 0
    assert "regressed" not in {row["verdict"] for row in found["cells"]}
    assert rows(found, "cpu_time_ms")["short"]["mde"] > 0
    folder = next(shop.results.glob("*/reports/comparison.txt")).parent
    names = {"comparison.txt", "comparison.md", "comparison.html", "comparison.json", "comparison.junit.xml"}
    assert names <= {path.name for path in folder.iterdir()}


def test_wrong_numbers_and_a_crash_are_state_changes(shop: Shop) -> None:
    code, found = shop.upgrade("1.0", "1.3", *SHORT, *QUICK)
    assert code == 1
    state = rows(found, "state")["short"]
    assert (state["verdict"], state["base"], state["candidate"]) == ("regressed", "ok", "incorrect")
    code, found = shop.upgrade("1.4", "1.0", *QUICK)
    assert code == 0
    state = rows(found, "state")["short"]
    assert (state["verdict"], state["base"], state["candidate"]) == ("improved", "failed", "ok")
    code, _ = shop.upgrade("1.4", "1.0", *SHORT, *QUICK)
    assert code == 3, "a base that works nowhere compares nothing"


def test_memory_and_start_up_are_judged_while_speed_stays(shop: Shop) -> None:
    code, found = shop.upgrade("1.0", "1.5", "--metric", "peak_memory_bytes", "--metric", "load_s")
    assert code == 1
    assert rows(found, "peak_memory_bytes")["short"]["verdict"] == "regressed"
    assert rows(found, "load_s")["tiny"]["verdict"] == "regressed"
    assert rows(found, "load_s")["tiny"]["candidate"] > 0.4
    assert rows(found, "peak_memory_bytes")["tiny"]["verdict"] != "regressed"


def test_a_budget_ends_the_measuring_and_resume_goes_on_with_it(shop: Shop) -> None:
    code, found = shop.upgrade("1.0", "1.1", *SHORT, *QUICK, "--budget", "8s")
    assert code == 0
    assert {row["verdict"] for row in found["cells"] if row["metric"] in ("cpu_time_ms", "state")} == {
        "inconclusive"
    }
    run = max(shop.results.iterdir())
    header = json.loads((run / "run.json").read_text())
    assert header["outcome"] == "budget_spent"
    assert header["totals"]["stages_s"]["pilots"] + header["totals"]["stages_s"]["timed"] < 16
    before = (run / "attempts.jsonl").read_text()
    arguments = shop.command("upgrade", "--resume", run.name, "--json", *QUICK)
    done = subprocess.run(arguments, env=shop.toys.environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert rows(json.loads(done.stdout), "cpu_time_ms")["short"]["verdict"] == "regressed"
    assert (run / "attempts.jsonl").read_text().startswith(before), "nothing was repeated or lost"


def test_ctrl_c_leaves_a_run_that_can_be_resumed_and_no_worker(shop: Shop) -> None:
    arguments = shop.command(
        *("upgrade", "toyframe", version("1.0"), version("1.1"), "-c", str(shop.sweep), "--name", "stopped")
    )
    process = subprocess.Popen(
        arguments, env=shop.toys.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 240
    while not any("measure" in path.read_text() for path in _attempts(shop)):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "matrix upgrade --resume" in said
    assert not [folder for folder in Path("/proc").glob("[0-9]*") if _is_worker(folder, str(shop.results))]


def _attempts(shop: Shop) -> list[Path]:
    found = []
    for path in shop.results.glob("*/run.json"):
        if (
            json.loads(path.read_text()).get("name") == "stopped"
            and (path.parent / "attempts.jsonl").exists()
        ):
            found.append(path.parent / "attempts.jsonl")
    return found


def _is_worker(process: Path, results: str) -> bool:
    try:
        command = (process / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return False
    return "matrix_adapters.worker" in command and results in command
