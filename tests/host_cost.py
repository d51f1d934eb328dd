"""`python host_cost.py FOLDER CELLS`: a sweep whose workers cost nothing; prints what is left as JSON."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from toy_sweep import ToySweep, X

from matrix.consolidate.stored import records_of
from matrix.report import render
from matrix.store.runs import StoredRun
from matrix_adapters.protocol import Result, State, Task, TaskKind, TensorFacts


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


_N = np.full(22, 1_000_000, dtype=np.int64)
_SAMPLES = _npz(
    wall_ns=_N, cpu_ns=_N, process_ns=_N, nivcsw=_N * 0, nvcsw=_N * 0, calls=_N * 0 + 1, start_ns=_N.cumsum()
)
_OUTPUTS = _npz(y=(X * 2).astype(np.float32))
#: as large as what a real worker reports about its machine
_PROBES = {f"probe_{number}": {"value": number, "text": "x" * 40} for number in range(60)}
_FACTS = {"y": TensorFacts(shape=(4,), dtype="float32", sha256="0" * 64)}


def _peak_bytes() -> int:
    """The high-water mark of this program alone: ru_maxrss starts with what the parent held at the fork."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def free_worker(built: Any, task: Task, folder: Path, **_: Any) -> Result:
    """What a real worker leaves, at once."""
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    (out / "log.txt").touch()
    if task.kind is TaskKind.MEMORY:
        return Result(
            state=State.OK, metrics={"peak_memory_bytes": 1e9}, probes=_PROBES, artefacts={"inputs": _FACTS}
        )
    (out / "samples.npz").write_bytes(_SAMPLES)
    (out / "outputs.npz").write_bytes(_OUTPUTS)
    return Result(
        state=State.OK,
        phases={"import_s": 1.0, "load_s": 1.0, "compile_s": 0.0, "first_call_s": 0.1},
        metrics={
            "latency_ms": 1.0,
            "cpu_time_ms": 1.0,
            "import_s": 1.0,
            "load_s": 1.0,
            "first_call_ms": 100.0,
        },
        effective={"device": "cpu", "threads": 1, "precision": "fp32", "math_mode": "fp32"},
        probes=_PROBES,
        outputs=_FACTS,
        artefacts={"inputs": _FACTS},
        started="2026-01-01T00:00:00.000+00:00",
        ended="2026-01-01T00:00:01.000+00:00",
    )


def measure(folder: Path, cells: int) -> dict[str, Any]:
    """Run this file in a process of its own: its peak memory is then the sweep's."""
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests), str(tests.parent / "adapters")])
    ended = subprocess.run(
        [sys.executable, __file__, str(folder), str(cells)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def main(folder: Path, cells: int) -> None:
    frameworks = [f"toy{number}" for number in range(10)]
    models = [f"good_{number}" for number in range(cells // len(frameworks))]
    sweep = ToySweep(folder, models=models, frameworks=frameworks, launches=3)
    began, cpu = time.perf_counter(), time.process_time()
    outcome = sweep.run(run_task=free_worker)
    swept, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert outcome.states == {State.OK: cells}, outcome
    peak = _peak_bytes()
    began = time.perf_counter()
    run = StoredRun(outcome.folder)
    records = records_of(run)
    read = time.perf_counter() - began
    assert len(records) == cells
    began = time.perf_counter()
    table = render("table", records, run.header.model_dump(mode="json"), sweep.catalog)
    print(
        json.dumps(
            {
                "cells": cells,
                "ms_per_cell": swept * 1e3 / cells,  # waits for the disk, which others use as well
                "cpu_ms_per_cell": cpu * 1e3 / cells,
                "peak_bytes": peak,
                "read_s": read,
                "table_s": time.perf_counter() - began,
                "peak_bytes_with_table": _peak_bytes(),
                "table_characters": len(table),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
