"""How many failures have an explanation, and which explanations are out of date.

Every cell that ended `incorrect` or `failed` counts once. A user's own kernels are left out:
what is known of a framework says nothing of them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from matrix.operators.dtypes import dtype_of
from matrix.operators.known import WHOSE, Fault, KnownFailure, KnownFailures
from matrix.records import CANDIDATE, Record
from matrix.report.operators.pass_table import PassTable
from matrix_adapters.protocol import State

#: states that the catalog may know a reason for
FAILURES = (State.INCORRECT, State.FAILED)
#: of a list in a sentence
_MOST = 5
#: what is said of a failure that has no explanation, in a framework that has a file of them
UNKNOWN = "not explained yet"


@dataclasses.dataclass(frozen=True, slots=True)
class Explained:
    """One environment's failures."""

    column: str
    faults: Mapping[Fault, int]  # how many failures are whose
    unexplained: int
    mended: tuple[str, ...]  # known to fail, but they pass here: "MaxPool/nan float16"

    @property
    def failures(self) -> int:
        return sum(self.faults.values()) + self.unexplained


def find(table: PassTable, known: KnownFailures) -> tuple[Explained, ...]:
    """One for each environment whose framework has a file of known failures, in the table's order."""
    counted: dict[int, Counter[Fault]] = {}
    unexplained: Counter[int] = Counter()
    mended: dict[int, list[str]] = {}
    for cells in table.placed.values():
        for i, record in cells.items():
            if not _applies(record, known):
                continue
            faults = counted.setdefault(i, Counter())
            if record.state in FAILURES:
                entry = entry_of(record, known)
                faults.update([entry.fault] if entry else [])
                unexplained[i] += entry is None
            elif record.state is State.OK and _any_entry(record, known):
                mended.setdefault(i, []).append(f"{record.workload.subject} {_dtype(record)}")
    return tuple(
        Explained(table.columns[i].label, counted[i], unexplained[i], tuple(mended.get(i, ())))
        for i in sorted(counted)
    )


def entry_of(record: Record, known: KnownFailures) -> KnownFailure | None:
    """What the catalog knows of this failure."""
    if record.state not in FAILURES or not _applies(record, known):
        return None
    work = record.workload
    return known.explain(record.environment.framework, work.subject, _dtype(record), record.state.value)


def why(record: Record, known: KnownFailures) -> str:
    """The explanation of a failure in words; "" for what has none and needs none."""
    entry = entry_of(record, known)
    if entry is not None:
        return entry.words
    return UNKNOWN if record.state in FAILURES and _applies(record, known) else ""


def sentences(one: Explained) -> list[str]:
    """What the headline says of an environment; nothing where nothing failed or was mended."""
    said = []
    if one.failures:
        whose = ", ".join(f"{count} {WHOSE[fault]}" for fault, count in sorted(one.faults.items()))
        known = f"{sum(one.faults.values())} explained{f' ({whose})' if whose else ''}"
        rest = f", {one.unexplained} not" if one.unexplained else ""
        many = "failure" if one.failures == 1 else "failures"
        said.append(f"{one.column}: of {one.failures} {many} {known}{rest}.")
    if one.mended:
        more = f" and {len(one.mended) - _MOST} more" if len(one.mended) > _MOST else ""
        said.append(f"{one.column}: known to fail, but right here: {', '.join(one.mended[:_MOST])}{more}.")
    return said


def _applies(record: Record, known: KnownFailures) -> bool:
    return record.environment.framework in known and not record.workload.variant.startswith(CANDIDATE)


def _any_entry(record: Record, known: KnownFailures) -> bool:
    work, dtype = record.workload, _dtype(record)
    return any(one.covers(work.subject, dtype) for one in known.of(record.environment.framework))


def _dtype(record: Record) -> str:
    return dtype_of(record.workload.precision)
