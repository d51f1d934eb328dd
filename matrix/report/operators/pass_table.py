"""Operators by environments: how many cases of each pass, and how the rest ended.

Every record counts in exactly one entry, and in exactly one state of it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from matrix.records import Record
from matrix.report.metrics import Catalog
from matrix.report.operators.case_book import CaseBook
from matrix.report.placing import Column, Placed, place
from matrix.report.summary import STATE_ORDER
from matrix_adapters.protocol import State

#: the flag of a cell whose answer is its own where the standard leaves the answer open
DIFFERS = "differs_by_definition"
DIFFERS_WORDS = "differs by definition"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """Cases of one operator (or family, or all) in one environment."""

    passed: int = 0
    differs: int = 0  # ok, but not what the reference says, where that is left open
    others: Mapping[State, int] = dataclasses.field(default_factory=dict)  # by state, none of them ok

    @property
    def total(self) -> int:
        return self.passed + self.differs + sum(self.others.values())

    @property
    def clean(self) -> bool:
        """Whether every case passed."""
        return self.passed == self.total

    @property
    def text(self) -> str:
        return f"{self.passed}/{self.total}" if self.total else ""

    def rest(self) -> list[tuple[int, str]]:
        """What did not pass: how many, and the word for it."""
        listed = [(count, state.value.replace("_", " ")) for state, count in self.others.items()]
        return [*([(self.differs, DIFFERS_WORDS)] if self.differs else []), *listed]

    def __add__(self, other: Entry) -> Entry:
        counted = Counter(self.others) + Counter(other.others)
        return Entry(
            self.passed + other.passed,
            self.differs + other.differs,
            {state: counted[state] for state in STATE_ORDER if counted[state]},
        )


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator: an entry for each column; one without cases where nothing was planned."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def clean(self) -> bool:
        return all(entry.clean for entry in self.entries)

    @property
    def cases(self) -> int:
        return max((entry.total for entry in self.entries), default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """Operators of one file of the catalog, in its order, and their sums."""

    name: str
    rows: tuple[OperatorRow, ...]
    entries: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PassTable:
    """The whole table; `placed` holds the records by row and column for whoever looks closer."""

    columns: tuple[Column, ...]
    families: tuple[Family, ...]
    totals: tuple[Entry, ...]
    placed: Placed

    @property
    def operators(self) -> int:
        return sum(len(family.rows) for family in self.families)

    @property
    def cases(self) -> int:
        """Different cases, each type a case of its own."""
        return len({(key.subject, key.precision) for key in self.placed})


def build(records: Sequence[Record], catalog: Catalog, book: CaseBook) -> PassTable:
    """Arrange the records of operators; a row is an operator, whatever its types and thread counts."""
    columns, placed = place(records, catalog)
    width = len(columns)
    sums: dict[str, list[Entry]] = {}
    for key, cells in placed.items():
        entries = sums.setdefault(key.subject.partition("/")[0], [Entry()] * width)
        for i, record in cells.items():
            entries[i] += _entry(record)
    grouped: dict[str, list[OperatorRow]] = {}
    for name in sorted(sums, key=_position(book)):
        grouped.setdefault(book.family(name), []).append(OperatorRow(name, tuple(sums[name])))
    families = tuple(
        Family(name, tuple(rows), _summed([row.entries for row in rows], width))
        for name, rows in grouped.items()
    )
    return PassTable(columns, families, _summed([f.entries for f in families], width), placed)


def differs(record: Record) -> bool:
    """Whether this ok cell gives an answer of its own where the standard leaves it open."""
    return record.state is State.OK and any(flag.code == DIFFERS for flag in record.flags)


def _entry(record: Record) -> Entry:
    if record.state is not State.OK:
        return Entry(others={record.state: 1})
    return Entry(differs=1) if differs(record) else Entry(passed=1)


def _summed(lines: Sequence[Sequence[Entry]], width: int) -> tuple[Entry, ...]:
    total = [Entry()] * width
    for line in lines:
        total = [a + b for a, b in zip(total, line, strict=True)]
    return tuple(total)


def _position(book: CaseBook) -> Callable[[str], tuple[int, str]]:
    """The catalog's order of operators; unknown ones last, by name."""
    order = {name: i for i, name in enumerate(book.families)}
    return lambda name: (order.get(name, len(order)), name)
