"""The worked example of docs/candidates.md: it passes, it is faster, and what is subtly wrong is caught."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, blocks, write_files

from matrix.config.candidates import CandidateChoice
from matrix_adapters.protocol import (
    Measure,
    ModelSpec,
    Node,
    OperatorCase,
    Result,
    State,
    Task,
    TaskKind,
    TensorSpec,
    plain,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("ninja") is None or shutil.which("c++") is None,
        reason="PyTorch's extension tools need ninja and a C++ compiler",
    ),
]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page; what is compiled goes into the test's own folder."""
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


def checked(folder: Path) -> tuple[int, dict[tuple[str, str, str], dict[str, Any]]]:
    """The sweep of the example: its exit code, and its records by case, precision and variant."""
    done = matrix(folder, "run", "-c", "candidate.yaml", "--backend", "venv", "--quiet", "--json")
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


def own(records: dict[tuple[str, str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    found = [record for (_, _, variant), record in records.items() if variant == "candidate:fused_layer_norm"]
    assert found
    return found


def test_the_fused_kernel_passes_every_case_beside_the_stock_operator(example: Path) -> None:
    code, records = checked(example)
    assert {record["state"] for record in own(records)} == {"ok"}, [r["reason"] for r in own(records)]
    assert code == 0
    stock = {key[:2] for key in records if key[2] == "eager"}
    assert stock == {key[:2] for key in records if key[2] != "eager"}, "every case of the operator, for both"
    gradients = [r["effective"]["gradient"] for r in own(records) if "gradient" in r["effective"]]
    assert gradients
    assert all(gradient["passed"] for gradient in gradients)
    shown = matrix(example, "operators", "candidates", "latest", "--share", "a_model=0.2")
    assert shown.returncode == 0, shown.stderr
    assert f"{len(own(records))} of {len(own(records))} pass" in shown.stdout


def test_a_kernel_that_forgets_the_mean_is_caught_in_every_case(example: Path) -> None:
    change(example, "layer_norm.cpp", "const wide d = static_cast<wide>(from[i]) - mean;", "const wide d = from[i];")
    code, records = checked(example)
    assert code == 1
    assert {record["state"] for record in own(records)} == {"incorrect"}
    for record in own(records):
        assert record["parity"]["worst"], "the worst element, and both values"
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
    assert {r["state"] for key, r in records.items() if key[2] == "eager"} == {"ok"}


def test_the_fused_kernel_is_faster_than_the_eager_sequence(
    example: Path, run_task: Callable[..., Result]
) -> None:
    folder = _large_case(example, run_task)
    choice = CandidateChoice(
        name="fused",
        operator="LayerNormSpelledOut",
        framework="pytorch",
        callable="kernels/layer_norm.py:layer_norm",
    ).resolved(example)
    stock = _latency(folder, run_task, example / "stock", {})
    fused = _latency(folder, run_task, example / "fused", {"candidate": choice.told()})
    assert stock / fused > 1.5, f"{stock:.3g} ms in nine calls, {fused:.3g} ms in one"


def _large_case(folder: Path, run_task: Callable[..., Result]) -> Path:
    """512 rows of 768, prepared as any case."""
    ones = {"generator": "ones", "constant": True}
    tensors = [
        TensorSpec(name="X", dtype="float32", shape=(512, 768)),
        _constant("axes", "int64", [-1]),
        _constant("epsilon", "float32", 1e-5),
        TensorSpec(name="Scale", dtype="float32", shape=(768,), **ones),  # type: ignore[arg-type]
        TensorSpec(name="B", dtype="float32", shape=(768,), **ones),  # type: ignore[arg-type]
    ]
    keep = {"keepdims": 1}
    steps = [
        Node(op="ReduceMean", inputs=("X", "axes"), outputs=("M",), attributes=keep),
        Node(op="Sub", inputs=("X", "M"), outputs=("D",)),
        Node(op="Mul", inputs=("D", "D"), outputs=("S",)),
        Node(op="ReduceMean", inputs=("S", "axes"), outputs=("V",), attributes=keep),
        Node(op="Add", inputs=("V", "epsilon"), outputs=("Ve",)),
        Node(op="Sqrt", inputs=("Ve",), outputs=("Sd",)),
        Node(op="Div", inputs=("D", "Sd"), outputs=("N",)),
        Node(op="Mul", inputs=("N", "Scale"), outputs=("G",)),
        Node(op="Add", inputs=("G", "B"), outputs=("Y",)),
    ]
    case = OperatorCase(
        name="LayerNormSpelledOut/large",
        dtype="float32",
        nodes=tuple(steps),
        inputs=tuple(tensors),
        outputs=("Y",),
        opset=18,
    )
    task = Task(
        kind=TaskKind.ORACLE,
        framework="pytorch",
        adapter="matrix_adapters.pytorch",
        options={"cases": [plain(case)], "folders": ["0"]},
    )
    out = folder / "oracle"
    assert run_task("pytorch", task, out).state is State.OK
    return out / "0"


def _constant(name: str, dtype: str, values: Any) -> TensorSpec:
    shape = (len(values),) if isinstance(values, list) else ()
    options = {"values": values}
    return TensorSpec(
        name=name, dtype=dtype, shape=shape, generator="values", options=options, constant=True
    )


def _latency(folder: Path, run_task: Callable[..., Result], out: Path, options: dict[str, Any]) -> float:
    """Milliseconds of one call, by the clock that times everything."""
    task = Task(
        kind=TaskKind.MEASURE,
        framework="pytorch",
        adapter="matrix_adapters.pytorch",
        model=ModelSpec(
            name="LayerNormSpelledOut/large", format="operator", task="operator", inputs=("X",), outputs=("Y",)
        ),
        artefacts={"operator": str(folder)},
        inputs=str(folder / "inputs.npz"),
        measure=Measure(samples=30),
        options=options,
    )
    result = run_task("pytorch", task, out)
    assert result.state is State.OK, result.reason
    assert ("candidate" in result.effective) == bool(options)
    return float(dataclasses.asdict(result)["metrics"]["latency_ms"])
