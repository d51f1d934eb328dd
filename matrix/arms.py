"""The cells of an A/B run: each workload on the base and every candidate, on the base twice, a control.

Two arms are two environments, or one environment whose workers differ in a variant. An
arm that differs in nothing is the base measured against itself: its cells carry the arm
`aa` (NAME@aa). A share of all workloads gets such a pair in every A/B run: it shows what
the instrument reports where there is nothing to find.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from matrix.plan import Plan
from matrix.records import AA, CONTROL, Cell, Environment, Workload

#: of the workloads, how many are measured against themselves as well; one at least
AA_SHARE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One side: a version of the framework, and in what else it differs from the usual environment."""

    version: str
    changes: tuple[str, ...] = ()
    variant: str = ""  # "" leaves the sweep's own

    def environment(self, usual: Environment) -> Environment:
        return dataclasses.replace(usual, version=self.version, changes=self.changes)

    def workload(self, usual: Workload) -> Workload:
        return dataclasses.replace(usual, variant=self.variant) if self.variant else usual


@dataclasses.dataclass(frozen=True, kw_only=True)
class ABPlan:
    """Cells in a readable order, and what the run's header says of them."""

    cells: tuple[Cell, ...]
    comparison: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two cells that take turns in a block."""

    base: Cell
    candidate: Cell

    @property
    def name(self) -> str:
        """As the launches of both halves carry it."""
        return self.candidate.side

    @property
    def is_aa(self) -> bool:
        return self.candidate.arm == AA

    @property
    def is_control(self) -> bool:
        return self.base.workload.level == CONTROL

    @property
    def label(self) -> str:
        return f"{self.base.workload.label}: {self.base.side} against {self.name}"


def ab_plan(plan: Plan, base: Arm, candidates: Sequence[Arm], *, seed: int) -> ABPlan:
    """Both arms of every cell in `plan` (the cells of one framework in its usual environments)."""
    usual = list(dict.fromkeys(cell.environment for cell in plan.cells))
    cells: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        cells.setdefault(cell.id, cell)

    chosen = _aa_workloads([cell for cell in plan.runnable if cell.timed], seed)
    for cell in plan.cells:
        add(_of(base, cell))
        for arm in candidates:
            add(_of(arm, cell, _label(arm, base)))
        if (cell.environment, cell.workload) in chosen:
            add(_of(base, cell, AA))
    for environment in usual:
        runnable = any(cell.environment == environment for cell in plan.runnable)
        if runnable:
            add(_control(base.environment(environment)))
            for arm in candidates:
                add(_control(arm.environment(environment), _label(arm, base)))
    comparison: dict[str, Any] = {  # a name for each hardware
        "base": [base.environment(e).name for e in usual],
        "candidates": [[_side(arm, base, environment) for environment in usual] for arm in candidates],
    }
    if base.variant or any(arm.variant for arm in candidates):
        comparison["variants"] = [base.variant, *(arm.variant for arm in candidates)]
    return ABPlan(cells=tuple(cells.values()), comparison=comparison)


def pairs_of(cells: Iterable[Cell], comparison: Mapping[str, Any]) -> tuple[Pair, ...]:
    """All pairs of an A/B run's cells, those that cannot run included."""
    known = list(cells)
    bases = set(comparison["base"])
    by_key: dict[Any, Cell] = {}
    for cell in known:
        if not cell.arm and cell.environment.name in bases:
            by_key.setdefault(_key(cell, comparison), cell)
    return tuple(_pairs(known, by_key, comparison))


def _pairs(cells: Iterable[Cell], bases: Mapping[Any, Cell], comparison: Mapping[str, Any]) -> Iterator[Pair]:
    for cell in cells:
        base = bases.get(_key(cell, comparison))
        if base is not None and base.id != cell.id:
            yield Pair(base=base, candidate=cell)


def _key(cell: Cell, comparison: Mapping[str, Any]) -> Any:
    """What both halves of a pair have in common."""
    work, environment = cell.workload, cell.environment
    variant = "" if comparison.get("variants") else work.variant
    shape = (work.level, work.subject, work.batch, work.sequence, work.precision, work.threads, variant)
    return (environment.framework, environment.hardware, shape)


def _label(arm: Arm, base: Arm) -> str:
    """The field `arm` of a candidate's cells: needed where its environment is the base's own."""
    if (arm.version, arm.changes) != (base.version, base.changes):
        return ""
    return AA if arm.variant == base.variant else arm.variant or "default"


def _side(arm: Arm, base: Arm, usual: Environment) -> str:
    label = _label(arm, base)
    name = arm.environment(usual).name
    return f"{name}@{label}" if label else name


def _of(arm: Arm, cell: Cell, label: str = "") -> Cell:
    return dataclasses.replace(
        cell,
        environment=arm.environment(cell.environment),
        workload=arm.workload(cell.workload),
        arm=label,
    )


def _control(environment: Environment, arm: str = "") -> Cell:
    workload = Workload(
        level=CONTROL, subject=CONTROL, batch=1, sequence=None, precision="fp64", threads=1, variant=""
    )
    return Cell(environment=environment, workload=workload, arm=arm)


def _aa_workloads(runnable: Sequence[Cell], seed: int) -> set[tuple[Environment, Workload]]:
    """Which workloads are measured against themselves: random, the same for the same seed."""
    known = [(cell.environment, cell.workload) for cell in runnable]
    if not known:
        return set()
    count = max(1, round(AA_SHARE * len(known)))
    return set(random.Random(f"aa:{seed}").sample(known, count))  # noqa: S311 (order, not secrecy)
