"""`matrix plan` answers at once: 10,000 cells planned, selected and printed, the process start included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from matrix import catalog
from matrix.config.sweep import load_sweep
from matrix.plan import make_plan
from matrix.report.plan_view import plan_json, plan_text

SWEEP = """\
name: large
frameworks: [pytorch, tensorflow, onnxruntime, tensorrt]
hardware: [cpu, nvidia]
models: [resnet50, vit_base, bert_base, distilbert, gpt2, llama_small, lstm, dlrm]
precisions: [fp32, bf16]
batch: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
sequence: [32, 64, 128]
threads: [1, 2, 4, 8]
rules: [{select: 'framework == "pytorch" and batch == 1', required: true}]
"""

PROGRAM = """\
import sys
from matrix import catalog
from matrix.config.sweep import load_sweep
from matrix.plan import make_plan
from matrix.report.plan_view import plan_text
shipped = catalog.load()
plan = make_plan(load_sweep(sys.argv[1], shipped), shipped, {}, 'batch > 0')
assert len(plan.cells) > 10_000
print(plan_text(plan))
"""


def test_planning_ten_thousand_cells(benchmark: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(SWEEP)
    shipped = catalog.load()
    plan = benchmark(lambda: make_plan(load_sweep(path, shipped), shipped, {}, "batch > 0", usable_threads=8))
    assert len(plan.cells) > 10_000


def test_planning_ten_thousand_cells_from_a_cold_process(benchmark: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(SWEEP)
    command = [sys.executable, "-c", PROGRAM, str(path)]
    benchmark.pedantic(lambda: subprocess.run(command, check=True, capture_output=True), rounds=3)


def test_printing_ten_thousand_cells_with_their_ids(benchmark: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(SWEEP)
    shipped = catalog.load()
    config = load_sweep(path, shipped)

    def everything() -> None:
        plan = make_plan(config, shipped, {}, usable_threads=8)
        plan_json(plan)
        plan_text(plan, verbose=True)

    benchmark.pedantic(everything, rounds=3)
