"""What this machine can: products of matrices through the framework itself, and memory traffic. Kind PEAKS.

The best of several sizes is the peak, by type: no data sheet, and no clock frequency that a shared machine
may not keep. It is measured for the number of threads that the cells have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

from matrix_adapters import bandwidth, caches, checks, clock, steps
from matrix_adapters.adapter import Adapter
from matrix_adapters.failures import classify
from matrix_adapters.launch import Launch
from matrix_adapters.operators import case_folder
from matrix_adapters.operators.batch import spec_of
from matrix_adapters.protocol import OperatorCase, State, Task

#: of one product: calls, and seconds after which no other is begun
_CALLS, _SECONDS = 9, 1.5


def run(adapter: Adapter, task: Task, launch: Launch) -> None:
    """Time `options["cases"]`, folders of two-dimensional products, then memory where `options["memory"]`.

    `artefacts["products"]`: for each its case, dtype, operations, threads that were really used, and seconds
    of the best call, or why there are none. `artefacts["bandwidth"]`: `bandwidth.measure`; beside it
    `artefacts["caches"]`.
    """
    folders = task.options.get("cases")
    if not isinstance(folders, list):
        raise TypeError("a peaks task needs the option `cases`, a list of folders")
    steps.import_framework(adapter, launch)
    products = []
    for number, folder in enumerate(folders):
        launch.heart.enter(f"product {number}")
        with launch.heart.beating():
            products.append(_product(adapter, Path(str(folder)), task, launch))
    launch.artefacts["products"] = products
    found = caches.read()
    launch.artefacts["caches"] = dataclasses.asdict(found)
    if task.options.get("memory"):
        launch.heart.enter("bandwidth")
        with launch.heart.beating():
            levels = bandwidth.measure(task.threads, found)
        launch.artefacts["bandwidth"] = [dataclasses.asdict(level) for level in levels]


def operations(case: OperatorCase) -> int:
    """2 M N K of A [M, K] x B [K, N]. Raises ValueError for any other case."""
    shapes = [spec.shape for spec in case.inputs]
    if [node.op for node in case.nodes] != ["MatMul"] or [len(shape) for shape in shapes] != [2, 2]:
        raise ValueError(f"{case.name} is no product of two matrices")
    return 2 * shapes[0][0] * shapes[0][1] * shapes[1][1]


def _product(adapter: Adapter, folder: Path, task: Task, launch: Launch) -> dict[str, Any]:
    case = case_folder.read_case(folder)
    told: dict[str, Any] = {"case": case.name, "dtype": case.dtype, "flops": operations(case)}
    runner = None
    try:
        runner = adapter.load(spec_of(case), {"operator": folder})
        feed = runner.prepare(case_folder.feed(folder))
        runner.compile(feed)
        loop = clock.loop_of(runner)
        loop(feed, 1)
        launch.effective = dict(runner.effective())
        checks.device_was_met(task, launch.effective)
        told["threads"] = launch.effective.get("threads")
        best, begin = float("inf"), time.perf_counter()
        for _ in range(_CALLS):
            start = time.perf_counter()
            loop(feed, 1)
            best = min(best, time.perf_counter() - start)
            if time.perf_counter() - begin > _SECONDS:
                break
        told["best_s"] = best
    except Exception as error:
        state, reason = classify(error, "call")
        if state is State.UNAVAILABLE:
            raise
        told["absent"] = reason.text if reason else str(state)
    finally:
        if runner is not None:
            with contextlib.suppress(Exception):
                runner.close()
    return told
