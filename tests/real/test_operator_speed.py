"""A small speed sweep from the command line: checked, timed, held against the machine's own peaks."""

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
name: speed
hardware: [cpu]
frameworks: [pytorch, onnxruntime]
operators: [Relu/size_1, MatMul/gemm_512, Softmax/bert_base_scores_128]
measure: {launches: 1, samples: 5, max_steady_s: 0.3, max_warmup_s: 0.2, cache: CACHE}
"""


def run(folder: Path, text: str, *more: str) -> tuple[Path, list[dict[str, Any]]]:
    (folder / "sweep.yaml").write_text(text)
    command = [sys.executable, "-m", "matrix", "run", "-c", "sweep.yaml", "--backend", "venv", "--json", "-q"]
    done = subprocess.run(
        [*command, "--results", str(folder / "results"), *more],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    (stored,) = (folder / "results").glob("*/run.json")
    return stored.parent, json.loads(done.stdout)["cells"]


def _last_timed(cell: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = [x for x in cell["launches"] if x["purpose"] == "measure"][-1]["sampling"]
    return found


@pytest.mark.parametrize("cache", ["warm", "rotating"])
def test_a_speed_sweep_says_what_was_reached_and_what_the_machine_can(tmp_path: Path, cache: str) -> None:
    folder, cells = run(tmp_path, SWEEP.replace("CACHE", cache), "--select", "precision == 'fp32'")
    assert {cell["state"] for cell in cells} == {"ok"}
    assert len(cells) == 6
    peaks = json.loads((folder / "run.json").read_text())["peaks"]["1"]
    assert peaks["gemm"]["fp32"]["flops_s"] > 1e9
    assert [level["where"] for level in peaks["bandwidth"]][-1] == "memory"
    for cell in cells:
        metrics = cell["metrics"]
        work = cell["work"]
        seconds = metrics["latency_ms"]["value"] / 1e3
        assert metrics["tflops"]["value"] == pytest.approx(work["flops"] / seconds / 1e12)
        assert metrics["memory_gb_s"]["value"] == pytest.approx(work["bytes"] / seconds / 1e9)
        share = metrics["roofline_share"]["value"]
        assert share > 0  # peaks of a busy minute may be low: the cell says so
        assert (share > IMPOSSIBLE) == ("above_roof" in {flag["code"] for flag in cell["flags"]})
        assert cell["contract"]["cache"].startswith(cache)
        assert cell["parity"]["passed"]
        where = _last_timed(cell)
        if cache == "rotating":
            fits = where["cache_working_set_bytes"] <= where["cache_last_level_bytes"]
            assert fits == (cell["workload"]["subject"] == "Relu/size_1")
            assert fits == ("cache_not_exceeded" in {flag["code"] for flag in cell["flags"]})
        else:
            assert "cache_copies" not in where
    for name in ("matrix.txt", "matrix.md", "matrix.html"):
        text = (folder / "reports" / name).read_text()
        assert "of roof" in text
        assert "A call of one element" in text
