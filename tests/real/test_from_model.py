"""`from-model:` from the command line: a model's own operators, planned, checked, timed and summed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from matrix.consolidate.roofline import IMPOSSIBLE

pytestmark = pytest.mark.real

SWEEP = """\
name: resnet
hardware: [cpu]
frameworks: [onnxruntime]
operators: ['from-model:resnet50']
measure: {launches: 1, samples: 3, max_steady_s: 0.2, max_warmup_s: 0.1}
"""
#: the classifier and the one layer that is pooled: two cases, and the call of one element
FEW = "operator in ('Gemm', 'MaxPool') or subject == 'Relu/size_1'"


def matrix(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "matrix", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The run's folder, and its records."""
    folder = tmp_path_factory.mktemp("from-model")
    (folder / "sweep.yaml").write_text(SWEEP)
    done = matrix(
        folder,
        "run",
        "-c",
        "sweep.yaml",
        "--backend",
        "venv",
        "--select",
        FEW,
        "--json",
        "-q",
        "--results",
        "runs",
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    (stored,) = (folder / "runs").glob("*/run.json")
    return stored.parent, json.loads(done.stdout)["cells"]


def test_the_operators_of_a_model_are_cells_with_their_own_shapes(
    run: tuple[Path, list[dict[str, Any]]],
) -> None:
    _, cells = run
    assert {cell["state"] for cell in cells} == {"ok"}
    by_subject = {cell["workload"]["subject"]: cell for cell in cells}
    assert set(by_subject) == {"Gemm/resnet50_01", "MaxPool/resnet50_01", "Relu/size_1"}
    gemm = by_subject["Gemm/resnet50_01"]
    assert gemm["work"]["flops"] == 2 * 2048 * 1000
    assert (gemm["work"]["model"], gemm["work"]["count"]) == ("resnet50", 1)
    assert gemm["parity"]["passed"]
    share = gemm["metrics"]["roofline_share"]["value"]
    assert share > 0  # peaks of a busy minute may be low: the cell says so
    assert (share > IMPOSSIBLE) == ("above_roof" in {flag["code"] for flag in gemm["flags"]})


def test_the_report_sums_them_and_says_what_a_call_costs(run: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, _ = run
    for name in ("matrix.txt", "matrix.md", "matrix.html"):
        text = (folder / "reports" / name).read_text()
        assert "Operators of resnet50 in ONNX Runtime" in text, name
        assert "A call of one element (Relu/size_1)" in text.replace("\\", ""), name


def test_a_plan_lists_them_once_their_file_was_read(run: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, _ = run
    done = matrix(folder.parents[1], "plan", "-c", "sweep.yaml", "--verbose")
    assert done.returncode == 0, done.stderr
    assert "Conv/resnet50_01" in done.stdout


def test_a_plan_before_that_says_how_they_become_known(
    run: tuple[Path, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, _ = run
    monkeypatch.setenv("FRAMEWORK_MATRIX_HOME", str(tmp_path))
    done = matrix(folder.parents[1], "plan", "-c", "sweep.yaml")
    assert done.returncode == 2
    assert "`matrix run` does so before it plans" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_of_them_can_be_resumed(run: tuple[Path, list[dict[str, Any]]]) -> None:
    """Nothing is left to do, and the operators are found again: they belong to the run's plan."""
    folder, cells = run
    done = matrix(folder.parents[1], "run", "--resume", "latest", "--json", "-q", "--results", "runs")
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)["cells"]
    assert [cell["metrics"]["latency_ms"] for cell in again] == [c["metrics"]["latency_ms"] for c in cells]
