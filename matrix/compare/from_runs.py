"""What two environments of our own runs hold: launches, states, numerics, and what is beside them."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from matrix.catalog.types import Catalog
from matrix.compare import environments, machines, native
from matrix.compare.cells import Couple, couples, fields_of
from matrix.compare.collected import Collected, Count
from matrix.compare.findings import PARITY
from matrix.compare.native import Bout, Rules
from matrix.compare.sides import Duel, Side
from matrix.compare.states import parity_finding, state_finding, unmeasured_finding
from matrix.consolidate import contract
from matrix.consolidate.stored import records_of
from matrix.judge.rows import Layout, Row
from matrix.records import AA, CONTROL, EnvironmentRecord, LaunchRecord, Record
from matrix.select import Selector
from matrix_adapters.protocol import State

#: metrics of the control that tell whether the machine moved
_CONTROL_METRICS = ("latency_ms",)


class Reader:
    """The records of each run, read once."""

    def __init__(self) -> None:
        self._known: dict[str, list[Record]] = {}

    def of(self, side: Side) -> list[Record]:
        return [record for record in self.all(side) if _side_name(record) == side.environment]

    def all(self, side: Side) -> list[Record]:
        key = str(side.run.folder)
        if key not in self._known:
            self._known[key] = records_of(side.run)
        return self._known[key]


def gather(
    duel: Duel,
    catalog: Catalog,
    rules: Rules,
    select: Selector | None,
    found: Collected,
    *,
    prefix: str,
    reader: Reader,
) -> None:
    base, candidate = reader.of(duel.base), reader.of(duel.candidate)
    moved = machines.difference(duel.base.run.header.machine, duel.candidate.run.header.machine)
    if any(duel.variants):  # two arms of one environment differ in the variant alone
        base = _of_variant(base, *duel.variants)
        candidate = _of_variant(candidate, *reversed(duel.variants))
    pairs = [couple for couple in couples(base, candidate) if _selected(couple, select)]
    control = [couple for couple in pairs if couple.workload.level == CONTROL]
    judged = [couple for couple in pairs if couple.workload.level != CONTROL]
    names = [duel.candidate.environment, duel.base.environment]
    settle = _settling(duel, base, candidate)
    for couple in judged:
        labelled = dataclasses.replace(couple, label=prefix + couple.label)
        state = state_finding(labelled)
        if state is not None:
            found.findings.append(state)
        parity = parity_finding(labelled, catalog.tolerances)
        if parity is not None and (not rules.metrics or PARITY in rules.metrics):
            found.findings.append(parity)
        made = _rows(labelled, duel, rules, names, not_comparable=moved)
        found.rows += made
        if couple.both_ok and not made and not couple.only_checked:
            found.findings.append(unmeasured_finding(labelled))
        if any(row.layout == "separate-runs" for row in made):
            found.settle[labelled.label] = settle
    for couple in control:
        rows = _rows(couple, duel, dataclasses.replace(rules, metrics=_CONTROL_METRICS), names)
        found.control += [row for row in rows if row.layout != "separate-runs"]
    if duel.one_run and not duel.base.environment.endswith(f"@{AA}"):
        itself = Side(run=duel.base.run, environment=f"{duel.base.environment}@{AA}")
        new = duel.base.label not in found.against_itself  # several candidates may share a base
        found.against_itself.add(duel.base.label)
        if new and itself.environment != duel.candidate.environment:
            for couple in couples(base, reader.of(itself)):
                if couple.both_ok and couple.workload.level != CONTROL:
                    rows = _rows(couple, duel, rules, [itself.environment])
                    found.aa += [row for row in rows if not row.fixed and not row.mirrors]
    found.base = found.base + _count(couple.base for couple in judged)
    found.candidate = found.candidate + _count(couple.candidate for couple in judged)
    _beside(duel, base, candidate, rules, found, prefix=prefix, moved=moved)


def _of_variant(records: Sequence[Record], own: str, other: str) -> list[Record]:
    """The records of one arm, which is not always named."""
    return [r for r in records if (r.workload.variant == own if own else r.workload.variant != other)]


def _rows(
    couple: Couple, duel: Duel, rules: Rules, names: Sequence[str], *, not_comparable: str = ""
) -> list[Row]:
    base, candidate = couple.base, couple.candidate
    if base is None or candidate is None or not couple.both_ok:
        return []
    sides: tuple[Sequence[LaunchRecord], Sequence[LaunchRecord]] = (base.launches, candidate.launches)
    pair = native.pair_of(*sides, names) if duel.one_run else None
    layout: Layout = native.layout_of(*sides, pair) if duel.one_run else "separate-runs"
    work = couple.workload
    return list(
        native.rows(
            Bout(
                label=couple.label,
                family=f"{base.environment.hardware}|{work.level}",
                base=base.launches,
                candidate=candidate.launches,
                batch=work.batch,
                threads=(_threads(base), _threads(candidate)),
                pair=pair,
                layout=layout,
                not_comparable=not_comparable or _terms_differ(base, candidate),
            ),
            rules,
        )
    )


def _terms_differ(base: Record, candidate: Record) -> str:
    """Why the two were not measured alike; empty when they were."""
    differs = contract.difference(base.contract, candidate.contract)
    if differs is not None:
        field, mine, other = differs
        return f"{field.replace('_', ' ')} differs: {mine}, {other}"
    texts = [
        next((flag.text for flag in record.flags if "fallback" in flag.code), "none")
        for record in (base, candidate)
    ]
    return f"fallback differs: {texts[0]}, {texts[1]}" if texts[0] != texts[1] else ""


def _settling(duel: Duel, base: Sequence[Record], candidate: Sequence[Record]) -> str:
    """The command that measures both sides beside each other."""
    if not base or not candidate:
        return ""
    mine, other = base[0].environment, candidate[0].environment
    if mine.framework != other.framework or mine.hardware != other.hardware:
        return "`matrix run` with both in one sweep would settle it"
    changes = [f" --base-with {shlex.quote(change)}" for change in mine.changes]
    changes += [f" --candidate-with {shlex.quote(change)}" for change in other.changes]
    return (
        f"`matrix upgrade {mine.framework} {mine.version} {other.version}{''.join(changes)}` would settle it"
    )


def _beside(
    duel: Duel,
    base: Sequence[Record],
    candidate: Sequence[Record],
    rules: Rules,
    found: Collected,
    *,
    prefix: str,
    moved: str,
) -> None:
    """What is true of the environments as a whole: sizes, locks, what spied, what else to know."""
    mine, other = _environment(base), _environment(candidate)
    if mine is not None and other is not None:
        margin = rules.margin(environments.IMAGE_SIZE)
        if margin is not None:
            metric = rules.registry[environments.IMAGE_SIZE]
            label = prefix.removesuffix(": ") or "environment"
            row = environments.size_row(mine, other, metric, margin=margin, label=label)
            found.rows += [row] if row is not None else []
        found.locks[duel.name] = environments.lock_changes(mine, other)
    found.warnings += [w for w in environments.spies(base, candidate) if w not in found.warnings]
    if moved:
        found.warnings.append(
            f"{duel.base.label} and {duel.candidate.label} are of two machines ({moved}): "
            f"no time is comparable; {_settling(duel, base, candidate) or 'measure both on one'}"
        )
    versions = {side.run.header.version for side in (duel.base, duel.candidate)} - {""}
    if len(versions) > 1:
        found.warnings.append(
            f"measured by different versions of framework-matrix: {', '.join(sorted(versions))}"
        )
    for name, side, records in (("base", duel.base, base), ("candidate", duel.candidate, candidate)):
        flags = Counter(flag.code for record in records for flag in record.flags)
        if flags:
            said = ", ".join(f"{code.replace('_', ' ')} {n}" for code, n in sorted(flags.items()))
            whose = side.environment if prefix else f"the {name}"  # of several pairs: which?
            text = f"flagged cells of {whose}: {said}"
            found.warnings += [text] if text not in found.warnings else []  # several may share a base


def _environment(records: Sequence[Record]) -> EnvironmentRecord | None:
    return next((record.environment for record in records), None)


def _selected(couple: Couple, select: Selector | None) -> bool:
    if select is None or couple.workload.level == CONTROL:
        return True
    sides = (record for record in (couple.base, couple.candidate) if record is not None)
    return any(select(fields_of(record)) for record in sides)


def _count(records: Iterable[Record | None]) -> Count:
    known = [record for record in records if record is not None]
    return Count(cells=len(known), ok=sum(record.state is State.OK for record in known))


def _threads(record: Record) -> int:
    used = record.effective.get("threads", record.workload.threads)
    return used if isinstance(used, int) else record.workload.threads


def _side_name(record: Record) -> str:
    name = record.environment.name
    return f"{name}@{record.arm}" if record.arm else name
