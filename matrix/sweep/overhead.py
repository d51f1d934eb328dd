"""What our own loop costs: the null adapter, measured in every run like a framework."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np

from matrix.consolidate.reduce import timed
from matrix.execution.cancel import Cancel
from matrix.execution.local import Startable
from matrix.store.runs import RunStore
from matrix.sweep.launching import STALL_S, RunTask
from matrix_adapters.protocol import SAMPLES_FILE, Measure, State, Task, TaskKind

_MEASURE = Measure(samples=66, max_steady_s=1.0)
_TIMEOUT_S = 60.0


def null_adapter_cost(
    environment: str, built: Startable, *, store: RunStore, run_task: RunTask, cancel: Cancel
) -> dict[str, Any]:
    """Nanoseconds per call: median, and the range that holds 95 % of the samples.

    What cannot be measured has a reason under `absent`; the sweep goes on without it.
    """
    task = Task(
        kind=TaskKind.MEASURE,
        framework="null",
        adapter="matrix_adapters.null",
        measure=_MEASURE,
        keep_outputs=False,
    )
    folder = store.scratch()
    try:
        result = run_task(built, task, folder, timeout_s=_TIMEOUT_S, stall_s=STALL_S, cancel=cancel)
        if result.state is not State.OK:
            return {"absent": result.reason.text if result.reason else str(result.state)}
        try:
            with np.load(folder / "out" / SAMPLES_FILE, allow_pickle=False) as archive:
                samples = timed({name: archive[name] for name in archive.files})
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            return {"absent": f"the samples cannot be read: {error}"}
        if samples is None:
            return {"absent": "no samples were taken"}
        low, median, high = np.quantile(samples.per_call_ms * 1e6, [0.025, 0.5, 0.975])
        return {
            "median_ns": float(median),
            "low_ns": float(low),
            "high_ns": float(high),
            "samples": len(samples.per_call_ms),
            "environment": environment,
        }
    finally:
        store.drop_scratch(folder)
