"""The ONNX project's node tests and PyTorch's OpInfo samples, end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real


def matrix(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "matrix", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_node_tests_run_and_every_failure_has_a_reason(tmp_path: Path) -> None:
    done = matrix(
        tmp_path, "operators", "onnx-tests", "onnxruntime", "--backend", "venv", "--hardware", "cpu", "--json"
    )
    assert done.returncode == 1, "a few tests of this release fail in this release of ONNX Runtime"
    data: dict[str, Any] = json.loads(done.stdout)
    (one,) = data["environments"]
    assert one["total"] > 1500
    assert one["passed"] > 0.95 * one["run"]
    assert sum(reason["count"] for reason in one["reasons"]) == one["total"] - one["passed"] - one["open"]
    assert all(reason["text"] and reason["example"] for reason in one["reasons"])
    again = matrix(tmp_path, "operators", "show", "latest", "--json")
    assert json.loads(again.stdout) == data
    refused = matrix(tmp_path, "run", "--resume", "latest")
    assert refused.returncode == 2
    assert "matrix operators onnx-tests --resume" in refused.stderr


def test_samples_of_opinfo_come_back_unchanged_through_the_mapping(tmp_path: Path) -> None:
    done = matrix(
        tmp_path, "operators", "opinfo", "pytorch", "--backend", "venv", "--hardware", "cpu", "--json"
    )
    assert done.stdout, done.stderr
    (one,) = json.loads(done.stdout)["environments"]
    assert one["run"] > 500
    failing = [r for r in one["reasons"] if r["state"] in ("incorrect", "failed", "oom", "timeout")]
    assert failing == []
    assert done.returncode == 0
