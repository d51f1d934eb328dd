"""How long the correctness of operators takes: 600 cases in three frameworks, one batch of each.

The oracle is not counted: its answers are in the cache after the first run. What is counted is everything
between the first worker's start and the last record on the disk: imports, calls, judging, restarts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from matrix.errors import ExitCode

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

CASES, SECONDS = 600, 180.0
SWEEP = """
name: edges
hardware: [cpu]
frameworks: [pytorch, tensorflow, onnxruntime]
operators: [edges]
threads: [1]
"""


def test_six_hundred_cases_in_three_frameworks_take_less_than_three_minutes(
    benchmark: Any, tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    command = [sys.executable, "-m", "matrix", "run", "-c", "sweep.yaml", "--backend", "venv", "--quiet"]
    done = benchmark.pedantic(
        subprocess.run,
        args=([*command, "--results", str(tmp_path)],),
        kwargs={
            "cwd": tmp_path,
            "env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            "capture_output": True,
            "text": True,
            "check": False,
        },
        rounds=1,
    )
    assert done.returncode in (ExitCode.OK, ExitCode.VERDICT), done.stderr
    (header,) = [json.loads(path.read_text()) for path in tmp_path.glob("*/run.json")]
    totals = header["totals"]
    assert totals["launches"] >= 3 * CASES
    seconds = totals["stages_s"]["checks"]
    oracle = totals["stages_s"]["models"]
    print(f"{totals['launches']} checks in {seconds:.0f} s, apart from {oracle:.0f} s of the oracle")
    assert seconds * 3 * CASES / totals["launches"] < SECONDS
