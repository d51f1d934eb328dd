"""What two environments of imported samples hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matrix.compare import columns
from matrix.compare.collected import Collected, Count
from matrix.compare.native import Rules
from matrix.compare.sides import Duel, Side
from matrix.imported import records as imported_records
from matrix.imported import samples
from matrix.judge.rows import Layout, Row
from matrix.records import AA, CONTROL, Cell
from matrix.select import Selector
from matrix_adapters.protocol import State


def gather(duel: Duel, rules: Rules, select: Selector | None, found: Collected, *, prefix: str) -> None:
    loaded = {side.run.folder: samples.load(side.run.folder) for side in (duel.base, duel.candidate)}
    mine, other = (
        _chosen(columns.of_environment(loaded[side.run.folder], side.environment), side, select)
        for side in (duel.base, duel.candidate)
    )
    layout: Layout = "imported" if duel.one_run else "separate-runs"
    made = list(
        columns.rows(_without(mine, CONTROL), _without(other, CONTROL), rules, layout=layout, prefix=prefix)
    )
    found.rows += made
    found.absent_is_missing = True
    _say_unpaired(made, found)
    if not duel.one_run:
        found.settle |= {
            row.workload: "samples of both sides in one file, with common block labels, would settle it"
            for row in made
        }
    counts = [Count(cells=n, ok=n) for n in (_workloads(mine), _workloads(other))]
    found.base, found.candidate = found.base + counts[0], found.candidate + counts[1]
    found.unjudged += [
        name for name in {**mine, **other} if rules.unjudged(name) and name not in found.unjudged
    ]
    if not duel.one_run:
        return
    _control(mine, other, rules, found)
    name, arm = samples.split_arm(duel.base.environment)
    itself = f"{name}@{AA}"
    if arm != AA and duel.candidate.environment != itself:
        again = columns.of_environment(loaded[duel.base.run.folder], itself)
        base = columns.of_environment(loaded[duel.base.run.folder], duel.base.environment)
        common = {metric: base[metric] for metric in again if metric in base}
        rows = columns.rows(_without(common, CONTROL), _without(again, CONTROL), rules, layout=layout)
        found.aa += [row for row in rows if all(s.base and s.candidate for s in row.clocks.values())]


def _say_unpaired(rows: Sequence[Row], found: Collected) -> None:
    """Blocks that only one side has are no pairs; that they are left out is said."""
    counts = [
        len(sides.base.keys() ^ sides.candidate.keys())
        for row in rows
        if row.layout == "imported"
        for sides in row.clocks.values()
        if sides.base and sides.candidate
    ]
    touched = sum(count > 0 for count in counts)
    if touched:
        total = sum(counts)
        blocks = "1 block" if total == 1 else f"{total:,} blocks"
        where = "1 row" if touched == 1 else f"{touched:,} rows"
        told = "is on one side only: it counts" if total == 1 else "are on one side only: they count"
        found.warnings.append(f"{blocks} in {where} {told} for nothing")


def _control(base: columns.Columns, candidate: columns.Columns, rules: Rules, found: Collected) -> None:
    """What tells whether the machine moved: times of the control, whatever metrics were asked for."""
    sides = _only(base, CONTROL), _only(candidate, CONTROL)
    made = columns.rows(*sides, dataclasses.replace(rules, metrics=()), layout="imported")
    found.control += [row for row in made if row.timing]
    for name, mine, other in (("base", *sides), ("candidate", sides[1], sides[0])):
        if mine and not other:
            found.warnings.append(f"only the {name} has the control: nobody knows whether the machine moved")


def _chosen(found: columns.Columns, side: Side, select: Selector | None) -> columns.Columns:
    if select is None:
        return found
    environment, arm = imported_records.environment_of(side.environment)
    names = dict.fromkeys(name for workloads in found.values() for name in workloads)
    wanted = set()
    for name in names:
        cell = Cell(environment=environment, workload=imported_records.workload_of(name), arm=arm)
        if name == CONTROL or select({**cell.fields(), "state": State.OK.value}):
            wanted.add(name)
    return {metric: {w: v for w, v in of.items() if w in wanted} for metric, of in found.items()}


def _without(found: columns.Columns, workload: str) -> columns.Columns:
    return {metric: {w: v for w, v in of.items() if w != workload} for metric, of in found.items()}


def _only(found: columns.Columns, workload: str) -> columns.Columns:
    return {metric: {workload: of[workload]} for metric, of in found.items() if workload in of}


def _workloads(found: columns.Columns) -> int:
    return len({name for of in found.values() for name in of} - {CONTROL})
