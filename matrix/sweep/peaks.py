"""What this machine can, measured once in a run that times operators: the roof that they are held against.

Every environment multiplies matrices through its own adapter, in one process of its own; the best of all
sizes and environments is the machine's peak in that type. Memory bandwidth is NumPy's affair, in the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix.catalog.types import Catalog
from matrix.execution.cancel import Cancel
from matrix.execution.local import Startable
from matrix.operators.dtypes import precision_of
from matrix.records import Environment
from matrix.store.runs import RunStore
from matrix.sweep.launching import STALL_S, RunTask
from matrix_adapters.protocol import Result, State, Task, TaskKind

TIMEOUT_S = 300.0


def machine_peaks(
    environments: Mapping[Environment, Startable],
    threads: Iterable[int],
    folders: Sequence[Path],
    *,
    catalog: Catalog,
    store: RunStore,
    run_task: RunTask,
    cancel: Cancel,
) -> dict[str, Any]:
    """By number of threads, as text: `gemm` by precision, `bandwidth` by working set, `absent` what failed.

    gemm: {"fp32": {"flops_s", "case", "environment"}}; bandwidth: [{"bytes", "bytes_s", "kernel",
    "where"}]. Environments on other devices than the CPU take no part.
    """
    peaks = {}
    for count in threads:
        results: list[tuple[str, Result]] = []
        for environment, built in sorted(environments.items(), key=lambda item: item[0].name):
            framework = catalog.frameworks[environment.framework]
            if framework.hardware[environment.hardware].device != "cpu" or cancel.is_set():
                continue
            task = Task(
                kind=TaskKind.PEAKS,
                framework=framework.name,
                adapter=framework.adapter,
                threads=count,
                variant=framework.default_variant,
                options={
                    "cases": [str(folder) for folder in folders],
                    "memory": not any("bandwidth" in r.artefacts for _, r in results),
                },
            )
            folder = store.scratch()
            try:
                result = run_task(built, task, folder, timeout_s=TIMEOUT_S, stall_s=STALL_S, cancel=cancel)
            finally:
                store.drop_scratch(folder)
            results.append((environment.name, result))
        if results:
            peaks[str(count)] = best_of(results, count)
    return peaks


def best_of(results: Iterable[tuple[str, Result]], threads: int) -> dict[str, Any]:
    """The peaks of `threads` threads from what the environments found. Never raises for a failed one.

    A product that a framework made with another number of threads is none of these peaks.
    """
    gemm: dict[str, dict[str, Any]] = {}
    bandwidth: list[Any] = []
    caches: Mapping[str, Any] = {}
    absent: dict[str, str] = {}
    for name, result in results:
        if result.state is not State.OK:
            absent[name] = result.reason.text if result.reason else str(result.state)
            continue
        bandwidth = bandwidth or list(result.artefacts.get("bandwidth", ()))
        caches = caches or result.artefacts.get("caches", {})
        for product in result.artefacts.get("products", ()):
            precision = precision_of(product["dtype"])
            if why := _unusable(product, threads):
                absent.setdefault(f"{name} {precision}", why)
                continue
            flops_s = product["flops"] / product["best_s"]
            if flops_s > gemm.get(precision, {"flops_s": 0.0})["flops_s"]:
                gemm[precision] = {"flops_s": flops_s, "case": product["case"], "environment": name}
    return {"gemm": gemm, "bandwidth": bandwidth, "caches": caches, "absent": absent}


def _unusable(product: Mapping[str, Any], threads: int) -> str:
    """Why a product says nothing about the peak; "" where it does."""
    if "best_s" not in product:
        return str(product.get("absent", "no reason was given"))
    if product.get("threads") != threads:
        return f"{threads} threads asked, {product.get('threads', 'an unknown number')} used"
    return ""
