"""Cells of two environments, put side by side by what they compute."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from matrix.records import OPERATOR, Record, Workload, WorkloadRecord, operator_of
from matrix_adapters.protocol import State


@dataclasses.dataclass(frozen=True, kw_only=True)
class Couple:
    """One workload on both sides; a side that has no such cell is None."""

    label: str  # unique in the comparison
    base: Record | None
    candidate: Record | None

    @property
    def workload(self) -> WorkloadRecord:
        found = self.base or self.candidate
        assert found is not None  # noqa: S101 (a couple has a side)
        return found.workload

    @property
    def both_ok(self) -> bool:
        return all(side is not None and side.state is State.OK for side in (self.base, self.candidate))

    @property
    def only_checked(self) -> bool:
        """Whether neither side was ever timed: operators that are right or wrong and nothing more."""
        sides = [side for side in (self.base, self.candidate) if side is not None]
        return self.workload.level == OPERATOR and all(
            launch.purpose == "check" for side in sides for launch in side.launches
        )


def couples(base: Sequence[Record], candidate: Sequence[Record]) -> list[Couple]:
    """Cells matched by the fields of their workloads, in the order of the base.

    What is left over is matched without the variant, which is each framework's own word,
    where that leaves one cell on each side.
    """
    left = {_key(record): record for record in base}
    right = {_key(record): record for record in candidate}
    pairs: list[tuple[Record | None, Record | None]] = []
    taken: set[Hashable] = set()
    loose = _loose(left, right)
    for key, record in left.items():
        other = key if key in right else loose.get(key)
        taken.add(other)
        pairs.append((record, right[other] if other is not None else None))
    pairs += [(None, record) for key, record in right.items() if key not in taken]
    labels = _labels([(a or b) for a, b in pairs if (a or b) is not None])
    return [Couple(label=label, base=a, candidate=b) for label, (a, b) in zip(labels, pairs, strict=True)]


def fields_of(record: Record) -> dict[str, Any]:
    """A record's fields under the names that `--select` has."""
    environment, work = record.environment, record.workload
    return {
        "framework": environment.framework,
        "version": environment.version,
        "hardware": environment.hardware,
        "build": environment.build,
        "environment": environment.name,
        **{name: getattr(work, name) for name in WorkloadRecord.model_fields},
        "model": work.subject,
        "operator": operator_of(work),
        "arm": record.arm,
        "required": record.required,
        "state": record.state.value,
        "id": record.id,
    }


def unique(labels: Iterable[str], more: Sequence[Callable[[int], str]]) -> list[str]:
    """Labels that differ: where some are alike, what `more` says of each is added until none are."""
    found = list(labels)
    for addition in more:
        counts = Counter(found)
        if len(counts) == len(found):
            return found
        found = [
            f"{label} {addition(i)}".strip() if counts[label] > 1 else label for i, label in enumerate(found)
        ]
    seen: Counter[str] = Counter()
    for i, label in enumerate(found):
        seen[label] += 1
        if seen[label] > 1:
            found[i] = f"{label} #{seen[label]}"
    return found


def label_of(work: WorkloadRecord) -> str:
    """As `matrix.records.Workload` says it."""

    return Workload(**work.model_dump()).label


def _key(record: Record, variant: bool = True) -> Hashable:
    work = record.workload
    shape = (work.level, work.subject, work.batch, work.sequence, work.precision, work.threads)
    return (*shape, work.variant) if variant else shape


def _loose(left: Mapping[Hashable, Record], right: Mapping[Hashable, Record]) -> dict[Hashable, Hashable]:
    """Leftover keys of the left side -> the one of the right that differs in the variant only."""
    sides: list[dict[Hashable, list[Hashable]]] = []
    for mine, other in ((left, right), (right, left)):
        rest: dict[Hashable, list[Hashable]] = {}
        for key, record in mine.items():
            if key not in other:
                rest.setdefault(_key(record, variant=False), []).append(key)
        sides.append(rest)
    return {
        keys[0]: sides[1][shape][0]
        for shape, keys in sides[0].items()
        if len(keys) == 1 and len(sides[1].get(shape, ())) == 1
    }


def _labels(records: Sequence[Record | None]) -> list[str]:
    known = [record for record in records if record is not None]

    def variant(i: int) -> str:
        return f"[{known[i].workload.variant}]" if known[i].workload.variant else ""

    return unique(
        [label_of(record.workload) for record in known], [variant, lambda i: f"({known[i].workload.level})"]
    )
