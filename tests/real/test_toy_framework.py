"""A framework from outside the tree: the distribution of docs/add-a-framework.md, installed and run.

It is built and installed by pip into a folder of its own, as a user would beside
framework-matrix; nothing of it is in this repository but the page that shows it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import PIP_INSTALL, ROOT, blocks, environment, write_files

pytestmark = pytest.mark.real

PAGE = ROOT / "docs" / "add-a-framework.md"
SWEEP = """
name: toy
hardware: [cpu]
frameworks: [{frameworks}]
models: [{models}]
measure: {{launches: 1, samples: 5}}
"""
Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's folder with its files, the distribution installed."""
    folder = tmp_path_factory.mktemp("add-a-framework")
    write_files(blocks(PAGE), folder)
    run(folder, *PIP_INSTALL.split(), "./matrix-numpy")
    return folder


@pytest.fixture
def matrix_run(page: Path) -> Callable[..., tuple[int, Records]]:
    """`matrix run` of a sweep over these frameworks and models: its exit code and records."""

    def sweep(frameworks: str, models: str, *, plugins: Path = page) -> tuple[int, Records]:
        (plugins / "sweep.yaml").write_text(SWEEP.format(frameworks=frameworks, models=models))
        done = run(plugins, "matrix", "run", "-c", "sweep.yaml", "--json", check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["cells"]

    return sweep


def run(folder: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def test_it_stands_beside_pytorch_with_the_same_weights_and_agrees_with_float64(
    matrix_run: Callable[..., tuple[int, Records]],
) -> None:
    code, records = matrix_run("pytorch, numpy", "lstm_tiny")
    assert code == 0
    torch, toy = records
    assert [torch["state"], toy["state"]] == ["ok", "ok"]
    for what in ("weights", "inputs", "reference"):
        assert torch["artefacts"][what] == toy["artefacts"][what]
    assert toy["parity"]["passed"]
    assert toy["parity"]["reference"].startswith("pytorch 2.13.0")
    assert 0 < toy["parity"]["max_scaled_error"] < 1e-5
    assert toy["effective"]["threads"] == 1
    assert toy["metrics"]["latency_ms"]["value"] > 0
    assert toy["metrics"]["peak_memory_bytes"]["value"] > 1e6
    assert {line.partition("==")[0] for line in toy["environment"]["lock"]} == {
        "numpy",
        "safetensors",
        "threadpoolctl",
    }


def test_what_it_cannot_do_is_unsupported_in_its_own_words(
    matrix_run: Callable[..., tuple[int, Records]],
) -> None:
    code, (record,) = matrix_run("numpy", "dlrm_tiny")
    assert (code, record["state"]) == (0, "unsupported")
    assert record["reason"]["text"] == "this adapter knows the task lstm, not dlrm"
    assert record.get("metrics", {}) == {}


def test_two_gates_mixed_up_make_it_incorrect(
    matrix_run: Callable[..., tuple[int, Records]], page: Path, tmp_path: Path
) -> None:
    shutil.copytree(page, tmp_path, dirs_exist_ok=True)
    adapter = next(tmp_path.glob(".site/matrix_numpy/adapter.py"))
    right = adapter.read_text()
    wrong = right.replace("input_gate, forget, cell, output =", "forget, input_gate, cell, output =")
    assert wrong != right
    adapter.write_text(wrong)
    code, (record,) = matrix_run("numpy", "lstm_tiny", plugins=tmp_path)
    assert (code, record["state"], record["reason"]["code"]) == (1, "incorrect", "tolerance")
    assert record["parity"]["max_scaled_error"] > 1e-3


def test_an_entry_that_cannot_be_read_is_an_error_only_for_a_sweep_that_names_it(
    page: Path, tmp_path: Path
) -> None:
    shutil.copytree(page, tmp_path, dirs_exist_ok=True)
    entry = next(tmp_path.glob(".site/matrix_numpy/framework.yaml"))
    entry.write_text(entry.read_text().replace("consumes: checkpoint", "consumes: weights"))
    assert run(tmp_path, "matrix", "plan").returncode == 0
    refused = run(tmp_path, "matrix", "plan", "-c", "toy.yaml", check=False)
    assert refused.returncode == 2
    assert "the framework numpy cannot be used" in refused.stderr
    assert "consumes" in refused.stderr
