"""A model and a hardware profile are added to a copy of the tree, each by one file of the guide.

No line of code changes: what needs more than its own file is not data.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import ROOT, blocks

PAGE = ROOT / "docs" / "add-a-framework.md"
Matrix = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the packages, in a folder that is no checkout."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "matrix", tmp_path / "tree" / "matrix", ignore=ignored)
    adapters = "matrix_adapters"
    shutil.copytree(ROOT / "adapters" / adapters, tmp_path / "tree" / adapters, ignore=ignored)
    return tmp_path / "tree"


@pytest.fixture
def matrix(tree: Path) -> Matrix:
    """The command line of the copy."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "matrix", *arguments],
            cwd=tree.parent,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def add(tree: Path, folder: str) -> str:
    """Write the page's file below `matrix/catalog/FOLDER` into the tree; the name of what it adds."""
    (block,) = [b for b in blocks(PAGE) if b.file.startswith(f"matrix/catalog/{folder}/")]
    (tree / block.file).write_text(block.text)
    return Path(block.file).stem


def sweep(tree: Path, text: str) -> None:
    (tree.parent / "sweep.yaml").write_text(f"name: added\n{text}")


@pytest.mark.real
def test_a_model_is_added_by_one_file_and_runs(tree: Path, matrix: Matrix) -> None:
    name = add(tree, "models")
    sweep(
        tree,
        f"hardware: [cpu]\nframeworks: [tensorflow, onnxruntime]\nmodels: [{name}_tiny]\n"
        "measure: {launches: 1, samples: 5}\n",
    )
    done = matrix("run", "-c", "sweep.yaml", "--json")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert [cell["state"] for cell in cells] == ["ok", "ok"]
    assert all(cell["parity"]["max_scaled_error"] < 1e-5 for cell in cells)
    assert cells[0]["artefacts"]["weights"] == cells[1]["artefacts"]["weights"]


def test_a_model_that_was_not_added_is_unknown(tree: Path, matrix: Matrix) -> None:
    sweep(tree, "frameworks: [onnxruntime]\nmodels: [resnet18]\n")
    done = matrix("plan", "-c", "sweep.yaml")
    assert done.returncode == 2
    assert "there is no model 'resnet18'" in done.stderr


def test_a_machine_is_added_by_one_file_and_planned_at_once(tree: Path, matrix: Matrix) -> None:
    name = add(tree, "hardware")
    sweep(tree, f"hardware: [{name}]\nframeworks: [pytorch]\nmodels: [resnet50]\n")
    planned = json.loads(matrix("plan", "-c", "sweep.yaml", "--json").stdout)
    (cell,) = planned["cells"]
    assert cell["state"] == "unsupported"
    assert cell["reason"]["text"] == (
        "PyTorch does not run on Intel Gaudi (it has: cpu, nvidia, amd, intel-gpu, ascend)"
    )
    assert name in json.loads(matrix("doctor", "--json").stdout)["hardware"]


def test_a_framework_that_has_a_build_for_it_is_unavailable_without_the_device(
    tree: Path, matrix: Matrix
) -> None:
    name = add(tree, "hardware")
    profile = tree / "matrix" / "catalog" / "hardware" / f"{name}.yaml"
    profile.write_text(profile.read_text().replace("/dev/accel/accel0", "/dev/no-such-device"))
    entry = tree / "matrix" / "catalog" / "frameworks" / "pytorch.yaml"
    line = f"hardware:\n  {name}: {{build: cpu, device: hpu, precisions: [fp32]}}\n"
    entry.write_text(entry.read_text().replace("hardware:\n", line, 1))
    sweep(tree, f"hardware: [{name}]\nframeworks: [pytorch]\nmodels: [resnet50]\n")
    (cell,) = json.loads(matrix("plan", "-c", "sweep.yaml", "--json").stdout)["cells"]
    assert cell["state"] == "unavailable"
    assert cell["reason"]["text"] == "no Intel Gaudi: /dev/no-such-device does not exist"
