"""`matrix bisect` over local wheels of a toy framework: a guilty release, and a guilty dependency.

CPU time is followed, and the margin is wide: what is planted is found on a machine that is busy too.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toys.toyframework import Toys, build, forget

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("upgrade"), pytest.mark.timeout(1800)]

SLOW = {"short": ("spin", 0.6)}
VERSIONS = [f"1.{number}" for number in range(6)]
FOLLOW = ("--cell", "short", "--metric", "cpu_time_ms", "--margin", "cpu_time_ms=0.2", "--backend", "venv")


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    yield
    forget()


def command(toys: Toys, folder: Path, *arguments: str) -> list[str]:
    sweep = toys.sweep(folder, models=["short", "medium"])
    return [sys.executable, "-m", "matrix", "bisect", *arguments, "-c", str(sweep), *FOLLOW]


def found(output: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(output)
    return result


def test_a_guilty_release_is_found_among_local_wheels_after_a_stop_in_the_middle(tmp_path: Path) -> None:
    toys = build(tmp_path, {version: SLOW if version >= "1.3" else {} for version in VERSIONS})
    results = ("--results", str(tmp_path / "results"))
    begun = subprocess.Popen(
        command(toys, tmp_path / "sweep", "toyframe", "1.0", "1.5", "--wheels", str(toys.links), *results),
        env=toys.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert begun.stderr is not None
    said = ""
    for line in begun.stderr:
        said += line
        if line.startswith("bisect: testing 1.2"):
            break
    assert "bisect: 1.5 is bad: short b1 fp32 1t, cpu_time_ms: regressed: " in said
    time.sleep(5)  # in the middle of the second comparison
    begun.send_signal(signal.SIGINT)
    _, rest = begun.communicate(timeout=120)
    assert begun.returncode == 130, rest
    assert "continue with: matrix bisect --resume " in rest

    resumed = subprocess.run(
        [sys.executable, "-m", "matrix", "bisect", "--resume", "latest", "--json", *results],
        env=toys.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 1, resumed.stderr
    result = found(resumed.stdout)
    assert (result["outcome"], result["last_good"], result["first_bad"]) == ("found", "1.2", "1.3")
    assert result["versions"] == VERSIONS
    assert [change["name"] for change in result["lock_changes"]] == ["toyframe"]
    assert (result["guilty"], result["guilty_packages"]) == ("framework", [])
    evidence = next(test for test in result["tested"] if test["version"] == "1.3")
    assert 0.4 < evidence["effect"] < 0.9
    assert (tmp_path / "results" / evidence["run"] / "run.json").is_file()
    answers = {test["version"]: test["answer"] for test in result["tested"]}
    assert answers["1.5"] == "bad"
    assert answers["1.2"] == "good"
    assert len(list((tmp_path / "results").glob("*/run.json"))) == len(answers), (
        "a comparison was begun twice"
    )


def test_a_guilty_dependency_is_told_from_the_framework_that_brought_it(tmp_path: Path) -> None:
    toys = build(
        tmp_path,
        {version: {} for version in VERSIONS[:5]},
        dependency={"0.9": {}, "1.0": SLOW},
        requires={v: ["toykernels<1.0" if v < "1.2" else "toykernels>=1.0"] for v in VERSIONS[:5]},
    )
    done = subprocess.run(
        command(
            toys, tmp_path / "sweep", "toyframe", "1.0", "1.4", "--json", "--results", str(tmp_path / "runs")
        ),
        env=toys.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    result = found(done.stdout)
    assert (result["last_good"], result["first_bad"]) == ("1.1", "1.2")
    assert result["guilty"] == "dependency"
    assert result["guilty_packages"] == [{"name": "toykernels", "base": "0.9", "candidate": "1.0"}]
    answers = {test["version"]: test["answer"] for test in result["tested"]}
    assert answers["1.1 with toykernels 1.0 of 1.2"] == "bad"
    assert answers["1.2 with toykernels 0.9 of 1.1"] == "good"
