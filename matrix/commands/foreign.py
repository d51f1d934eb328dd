"""From others' tests to a sweep: its configuration, its cells, and where its tests are collected."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.artefacts.content_cache import ContentCache
from matrix.artefacts.foreign_tests import Collected, RunTask, Suite
from matrix.catalog.types import Catalog
from matrix.config.sweep import AUTO, FrameworkChoice, SweepConfig
from matrix.execution.dispatch import run_task
from matrix.execution.local import Startable
from matrix.machine import fingerprint as machine
from matrix.machine import hardware
from matrix.plan import make_plan
from matrix.records import Cell
from matrix_adapters.protocol import Result, State, Task

#: collecting takes a minute on an idle machine
_TIMEOUT_S, _STALL_S = 1800.0, 300.0
#: seconds for a batch's start, and for any one test: they are all small
_TEST_S = 120.0


def sweep_of(suite: Suite, data: Mapping[str, Any], collected: Collected | None) -> SweepConfig:
    """What a run stored under `foreign` as a sweep; without tests where they are not collected yet."""
    asked = data["foreign"]
    choice = FrameworkChoice(name=asked["framework"], versions=list(asked["versions"]))
    cases = tuple(case.catalog_case for case in collected.cases) if collected else ()
    return SweepConfig(
        name=suite.name,
        frameworks=(choice,),
        operators=cases,
        hardware=tuple(asked["hardware"]) or (AUTO,),
        timeout_s=_TEST_S,
        data=data,
    )


def plan_of(
    config: SweepConfig, catalog: Catalog, collected: Collected, select: str | None
) -> tuple[Cell, ...]:
    """Every test in every environment; one that no folder can hold is `unsupported`, with the reason."""
    found = hardware.probe(catalog.hardware)
    plan = make_plan(config, catalog, found, select, usable_threads=machine.usable_threads())
    refused = {case.key: case.refused for case in collected.cases if case.refused is not None}
    return tuple(
        dataclasses.replace(cell, state=State.UNSUPPORTED, reason=reason)
        if cell.state is None and (reason := refused.get((cell.workload.subject, cell.workload.precision)))
        else cell
        for cell in plan.cells
    )


def run_task_in(built: Startable, cache: ContentCache) -> RunTask:
    """Runs tasks there, each in a folder of its own that is gone afterwards."""

    def run(task: Task, out: Path) -> Result:
        with cache.workspace("foreign-tests") as folder:
            return run_task(built, task, folder, out_dir=out, timeout_s=_TIMEOUT_S, stall_s=_STALL_S)

    return run
