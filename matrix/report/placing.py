"""Which row and which column a record stands in. Every record gets a place of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from matrix.records import IMPORTED, Record, WorkloadRecord
from matrix.report.metrics import Catalog


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One environment, or one variant or arm of it."""

    key: tuple[str, ...]
    title: str  # "PyTorch 2.13.0"
    detail: str  # "cpu compile"
    framework: str

    @property
    def label(self) -> str:
        return f"{self.title} {self.detail}".strip()


@dataclasses.dataclass(frozen=True, slots=True)
class RowKey:
    """A workload without its variant: what all columns of the row have computed."""

    level: str
    subject: str
    batch: int
    sequence: int | None
    precision: str
    threads: int

    def parts(self) -> dict[str, str]:
        """The parameters in words, by name; absent axes are left out."""
        if self.level == IMPORTED:
            return {}
        words = {"batch": f"batch {self.batch}"}
        if self.sequence is not None:
            words["sequence"] = f"sequence {self.sequence}"
        words["precision"] = self.precision
        words["threads"] = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        return words

    def label(self, without: Iterable[str] = ()) -> str:
        left_out = set(without)
        return ", ".join([self.subject, *(t for n, t in self.parts().items() if n not in left_out)])


def row_key(workload: WorkloadRecord) -> RowKey:
    return RowKey(
        workload.level,
        workload.subject,
        workload.batch,
        workload.sequence,
        workload.precision,
        workload.threads,
    )


Placed = dict[RowKey, dict[int, Record]]


def place(records: Sequence[Record], catalog: Catalog) -> tuple[tuple[Column, ...], Placed]:
    """Give each record its row and column; cells that would collide get columns of their own."""
    variants: dict[str, set[str]] = {}
    backends: dict[str, set[str]] = {}
    for record in records:
        variants.setdefault(record.environment.name, set()).add(record.workload.variant)
        backends.setdefault(record.environment.name, set()).add(record.environment.backend)
    columns: dict[tuple[str, ...], int] = {}
    made: list[Column] = []
    placed: Placed = {}
    for record in records:
        name, variant = record.environment.name, record.workload.variant
        backend = record.environment.backend if len(backends[name]) > 1 else ""
        row = placed.setdefault(row_key(record.workload), {})
        copy = 1
        while True:
            key = (name, variant, record.arm, backend, str(copy))
            if key not in columns:
                columns[key] = len(made)
                many = len(variants[name]) > 1
                made.append(_column(key, record, catalog, many))
            if columns[key] not in row:
                break
            copy += 1
        row[columns[key]] = record
    return _in_family_order(made, placed)


def _column(key: tuple[str, ...], record: Record, catalog: Catalog, many_variants: bool) -> Column:
    environment, (_, variant, arm, backend, copy) = record.environment, key
    known = catalog.frameworks.get(environment.framework)
    default = getattr(known, "default_variant", "")
    detail = [environment.hardware]
    if variant and (many_variants or variant != default):
        detail.append(variant)
    detail += [word for word in (f"@{arm}" if arm else "", backend) if word]
    if copy != "1":
        detail.append(f"#{copy}")
    title = getattr(known, "title", "") or environment.framework
    title = f"{title} {environment.version}".strip()
    return Column(key, title, " ".join(word for word in detail if word), environment.framework)


def _in_family_order(made: list[Column], placed: Placed) -> tuple[tuple[Column, ...], Placed]:
    """Columns of one environment side by side, environments in order of appearance."""
    first: dict[str, int] = {}
    for column in made:
        first.setdefault(column.key[0], len(first))
    order = sorted(range(len(made)), key=lambda i: (first[made[i].key[0]], i))
    new = {old: position for position, old in enumerate(order)}
    moved = {key: {new[i]: record for i, record in row.items()} for key, row in placed.items()}
    return tuple(made[i] for i in order), moved
