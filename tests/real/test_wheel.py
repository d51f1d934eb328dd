"""The built wheel works by itself: in an empty virtualenv, outside any checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from matrix import paths

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """\
name: wheel
hardware: [cpu]
frameworks: [pytorch, onnxruntime]
models: [dlrm_tiny]
measure: {launches: 1}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(pip, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_both_packages_and_all_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"matrix", "matrix_adapters"}
    for needed in (
        "matrix/catalog/frameworks/pytorch.yaml",
        "matrix/catalog/constraints/pytorch-2.13.0-cpu.txt",
        "matrix/catalog/sweep.schema.json",
        "matrix/report/templates/page.html.j2",
        "matrix/images/install.sh",
        "matrix/images/onnxruntime/Dockerfile.cpu",
        "matrix_adapters/worker.py",
    ):
        assert needed in names


def test_an_installed_wheel_plans_and_runs_outside_any_checkout(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", str(wheel)], check=True)
    folder = tmp_path / "somewhere else"
    folder.mkdir()
    (folder / "sweep.yaml").write_text(SWEEP)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    clean[paths.HOME_VARIABLE] = str(paths.home())  # the environments that other tests use as well

    def matrix(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [environment / "bin" / "matrix", *arguments],
            cwd=folder,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )

    plan = matrix("plan", "-c", "sweep.yaml")
    assert plan.returncode == 0, plan.stderr
    assert plan.stdout.startswith("wheel: 2 cells (2 to run)")
    run = matrix("run", "-c", "sweep.yaml", "--json")
    assert run.returncode == 0, run.stderr
    assert [cell["state"] for cell in json.loads(run.stdout)["cells"]] == ["ok", "ok"]
    (page,) = folder.glob("results/*/reports/matrix.html")
    assert "dlrm_tiny" in page.read_text()
