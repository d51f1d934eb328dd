"""`check.sh` where there may be no GPU: a row for everything, and a reason for what it could not tell."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrix.catalog import folder as catalog_folder
from matrix.environments.base import BuiltEnvironment
from matrix.environments.venv import VenvBackend

HERE = Path(__file__).parent
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[int, dict[str, Any]]]:
    """Runs the script with this product's own PyTorch; (exit code, row by check)."""
    from matrix import catalog, paths
    from matrix.records import Environment

    facts = catalog.load_from(catalog_folder(), third_parties=False)
    version = facts.frameworks["pytorch"].version_for("cpu")
    environment = Environment(framework="pytorch", version=version, hardware="cpu", build="cpu")
    built: BuiltEnvironment = VenvBackend(facts.frameworks, paths.home()).build(environment)
    folder = tmp_path_factory.mktemp("gpu")

    def run(device: str) -> tuple[int, dict[str, Any]]:
        environ = {**os.environ, "DEVICE": device, "MODELS": "lstm"}
        command = [str(HERE / "check.sh"), str(built.python), str(folder)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert (folder / "summary.md").exists(), done.stderr
        rows = json.loads((folder / "summary.json").read_text())["rows"]
        return done.returncode, {row["check"]: row for row in rows}

    return run


def test_on_the_cpu_its_checks_pass_and_what_needs_a_gpu_is_unavailable_with_the_reason(
    check: Callable[[str], tuple[int, dict[str, Any]]],
) -> None:
    code, rows = check("cpu")
    assert code == 3
    assert {name for name, row in rows.items() if row["state"] == "ok"} >= {
        "lstm fp32",
        "lstm bf16",
        "CUDA asked, CPU got (planted)",
        "matrix run --backend host",
    }
    assert rows["lstm tf32"]["state"] == "unavailable"
    assert all(row["reason"] for row in rows.values() if row["state"] == "unavailable")
    assert "failed" not in {row["state"] for row in rows.values()}


def test_a_build_without_cuda_gives_no_number_for_cuda(
    check: Callable[[str], tuple[int, dict[str, Any]]],
) -> None:
    code, rows = check("cuda")
    assert code == 3
    assert rows["lstm fp32"]["state"] == "unavailable"
    assert "built without CUDA" in rows["lstm fp32"]["reason"]
    assert "ms" not in rows["lstm fp32"]["figures"]
    assert rows["CUDA asked, CPU got (planted)"]["state"] == "ok"


def test_a_python_without_pytorch_is_told_in_a_sentence(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = subprocess.run(
        [str(HERE / "check.sh"), str(python), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "has no PyTorch" in done.stderr
