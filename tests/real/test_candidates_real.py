"""The worked example of docs/candidates.md: it passes, it is faster, and what is subtly wrong is caught."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, blocks, write_files

pytestmark = pytest.mark.real

#: cases that are checked and not timed: what is wrong is wrong before anything is timed
UNTIMED = 'subject in ["LayerNormSpelledOut/plain", "LayerNormSpelledOut/wide"]'

Records = dict[tuple[str, str, str], dict[str, Any]]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page; what is compiled goes into the test's own folder."""
    if shutil.which("ninja") is None or shutil.which("c++") is None:
        pytest.skip("PyTorch's extension tools need ninja and a C++ compiler")
    write_files(blocks(ROOT / "docs" / "candidates.md"), tmp_path)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    return tmp_path


def matrix(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "matrix", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )


def checked(folder: Path, select: str = UNTIMED) -> tuple[int, Records]:
    """The sweep of the example: its exit code, and its records by case, precision and variant."""
    some = ("--select", select) if select else ()
    done = matrix(folder, "run", "-c", "candidate.yaml", "--backend", "venv", "--quiet", "--json", *some)
    assert done.stdout, done.stderr
    cells = json.loads(done.stdout)["cells"]
    return done.returncode, {
        (c["workload"]["subject"], c["workload"]["precision"], c["workload"]["variant"]): c for c in cells
    }


def change(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / "kernels" / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def own(records: Records) -> list[dict[str, Any]]:
    found = [record for (_, _, variant), record in records.items() if variant.startswith("candidate:")]
    assert found
    return found


def test_the_fused_kernel_passes_every_case_and_is_faster_than_the_eager_sequence(example: Path) -> None:
    code, records = checked(example, "")
    assert {record["state"] for record in own(records)} == {"ok"}, [r["reason"] for r in own(records)]
    assert code == 0
    stock = {key[:2] for key in records if key[2] == "eager"}
    assert stock == {key[:2] for key in records if key[2] != "eager"}, "every case of the operator, for both"
    gradients = [r["effective"]["gradient"] for r in own(records) if "gradient" in r["effective"]]
    assert gradients
    assert all(gradient["passed"] for gradient in gradients)
    shown = matrix(example, "operators", "candidates", "latest", "--share", "a_model=0.2", "--json")
    assert shown.returncode == 0, shown.stderr
    (found,) = json.loads(shown.stdout)
    assert found["passed"] == found["cases"] == len(own(records))
    assert len(found["timed"]) == 2
    assert found["speedup"] > 1.5, f"one call in the place of nine: {found['timed']}"
    (gain,) = found["gains"]
    assert gain["gain"] == pytest.approx(1 / (0.8 + 0.2 / found["speedup"]))


def test_a_kernel_that_forgets_the_mean_is_caught(example: Path) -> None:
    change(
        example,
        "layer_norm.cpp",
        "const wide d = static_cast<wide>(from[i]) - mean;",
        "const wide d = static_cast<wide>(from[i]);",
    )
    code, records = checked(example)
    assert code == 1
    wrong = {
        (r["workload"]["subject"].partition("/")[2], r["workload"]["precision"])
        for r in own(records)
        if r["state"] == "incorrect"
    }
    assert {("plain", "fp32"), ("plain", "fp64"), ("wide", "fp32")} <= wrong
    assert all(r["parity"]["worst"] for r in own(records) if r["state"] == "incorrect")
    assert {r["state"] for key, r in records.items() if key[2] == "eager"} == {"ok"}
    assert matrix(example, "operators", "candidates", "latest").returncode == 1


def test_a_gradient_that_drops_a_term_is_caught_where_the_answer_is_right(example: Path) -> None:
    change(example, "layer_norm.py", " - y * (g * y).mean(-1, keepdim=True)", "")
    code, records = checked(example)
    assert code == 1
    wrong = [record for record in own(records) if record["state"] != "ok"]
    assert {record["workload"]["precision"] for record in wrong} == {"fp64"}
    assert {record["reason"]["code"] for record in wrong} == {"gradient"}


def test_a_kernel_that_does_not_compile_fails_with_what_was_said(example: Path) -> None:
    change(example, "layer_norm.cpp", "return out;", "return out")
    code, records = checked(example)
    assert code == 1
    assert {record["state"] for record in own(records)} == {"failed"}
    assert all("Error building extension" in record["reason"]["text"] for record in own(records))
    assert {r["state"] for key, r in records.items() if key[2] == "eager"} == {"ok"}


def test_where_there_is_no_compiler_the_candidate_is_unavailable(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "a-compiler-that-nobody-has")
    code, records = checked(example)
    assert {record["state"] for record in own(records)} == {"unavailable"}
    assert all("no C++ compiler" in record["reason"]["text"] for record in own(records))
    assert {r["state"] for key, r in records.items() if key[2] == "eager"} == {"ok"}
    assert code == 0


LIBRARY = """\
import torch

@torch.library.custom_op("mine::add", mutates_args=())
def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b
"""
LIBRARY_SWEEP = """\
name: library
frameworks: [pytorch]
hardware: [cpu]
candidates:
  - {name: added, operator: Add, framework: pytorch, kind: torch_library, callable: "own.py:mine::add"}
"""


@pytest.mark.parametrize(("registered", "state"), [("add", "ok"), ("plus", "failed")])
def test_an_operator_of_torch_library_is_a_candidate(tmp_path: Path, registered: str, state: str) -> None:
    (tmp_path / "own.py").write_text(LIBRARY.replace("mine::add", f"mine::{registered}"))
    (tmp_path / "candidate.yaml").write_text(LIBRARY_SWEEP)
    code, records = checked(tmp_path, 'operator == "Add" and not startswith(subject, "Add/size_")')
    assert {record["state"] for record in own(records)} == {state}, [r["reason"] for r in own(records)]
    assert code == (0 if state == "ok" else 1)
    if state == "failed":
        assert all("registers no operator mine::add" in r["reason"]["text"] for r in own(records))


GAIN_SWEEP = """\
name: gain
frameworks: [pytorch]
hardware: [cpu]
models: [dlrm]
operators: ["from-model:dlrm"]
candidates:
  - {name: own, operator: Relu, framework: pytorch, callable: "own.py:relu"}
measure: {launches: 1, samples: 10, max_steady_s: 0.3, max_warmup_s: 0.3}
"""


def test_what_a_kernel_would_bring_follows_from_the_model_and_its_operators(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import torch\n\ndef relu(x):\n    return torch.relu(x)\n")
    (tmp_path / "candidate.yaml").write_text(GAIN_SWEEP)
    code, records = checked(tmp_path, 'level == "inference" or operator == "Relu" and "dlrm" in subject')
    assert code == 0, {key: record["reason"] for key, record in records.items()}
    uses = sum(r["work"]["count"] for (case, _, v), r in records.items() if case != "dlrm" and v == "eager")
    assert uses > 1
    shown = matrix(tmp_path, "operators", "candidates", "latest", "--json")
    assert shown.returncode == 0, shown.stderr
    (found,) = json.loads(shown.stdout)
    if found["without"]:  # on a machine that was busy just then
        (none,) = found["without"]
        assert "no share follows" in none["why"]
        return
    (gain,) = found["gains"]
    share = gain["share"]
    assert (share["model"], share["derived"]) == ("dlrm", True)
    assert 0 < share["share"] < 1
    assert share["source"].startswith(f"{uses} of them alone take ")


CARELESS = """\
import torch

def right(x):
    return torch.nn.functional.mish(x)

def two(x):
    return x, x

def nothing(x):
    return None

def array(x):
    return right(x).numpy()

def spoils(x):
    y = right(x)
    x.zero_()
    return y
"""
CARELESS_SWEEP = """\
name: careless
frameworks: [pytorch]
hardware: [cpu]
candidates:
"""


def test_a_candidate_that_breaks_a_promise_fails_with_the_promise(tmp_path: Path) -> None:
    broken = {
        "two": "two returned Tensor, Tensor: the operator has a tensor",
        "nothing": "nothing returned NoneType: the operator has a tensor",
        "array": "array returned ndarray: the operator has a tensor",
        "spoils": "spoils changed its input X",
    }
    (tmp_path / "own.py").write_text(CARELESS)
    entry = '  - {{name: {0}, operator: Mish, framework: pytorch, callable: "own.py:{0}"}}\n'
    (tmp_path / "candidate.yaml").write_text(CARELESS_SWEEP + "".join(map(entry.format, ["right", *broken])))
    code, records = checked(tmp_path, 'subject == "Mish/basic" and precision in ["fp32", "fp64"]')
    assert code == 1
    assert {r["state"] for key, r in records.items() if key[2] in ("eager", "candidate:right")} == {"ok"}
    for name, said in broken.items():
        cells = [record for key, record in records.items() if key[2] == f"candidate:{name}"]
        assert cells
        assert all(r["state"] == "failed" and said in r["reason"]["text"] for r in cells), (name, cells)
