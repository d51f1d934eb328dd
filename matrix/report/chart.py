"""The geometry that every picture of the matrix shares: one group of bars a workload, from zero.

Each group has its own linear scale, because a bar's length must mean the same as its number.
A cell without a believable number has no bar: its state stands in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matrix.report.matrix_table import Mark, MatrixTable, Row, TableCell
from matrix.report.placing import Column

#: one hue a framework; distinct for the common forms of colour blindness, dark enough for white text
HUES = ("#3E63DD", "#D9622B", "#0E9888", "#8E4EC6", "#B07B00", "#C2298A", "#4F6272", "#3D8F4C")


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """One cell's bar. Fractions are of the group's full width; None where there is no bar."""

    cell: TableCell
    column: int
    label: str
    colour: str
    length: float | None
    low: float | None
    high: float | None
    best: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """One workload's bars, in column order."""

    label: str
    row: Row
    bars: tuple[Bar, ...]


def groups(table: MatrixTable) -> list[Group]:
    """A group for every row of the matrix."""
    hues = colours(table.columns)
    found = []
    for row in table.rows:
        cells = [(i, c) for i, c in enumerate(row.cells) if c is not None]
        top = max((_reach(c) for _, c in cells), default=0.0)
        bars = tuple(_bar(table.columns[i], i, c, hues[i], top) for i, c in cells)
        found.append(Group(table.row_label(row), row, bars))
    return found


def colours(columns: Sequence[Column]) -> list[str]:
    """A hue for each framework; its further versions, variants and devices are tints of it."""
    frameworks: dict[str, int] = {}
    out: list[str] = []
    for column in columns:
        name = column.framework
        seen = [c for c in columns[: len(out)] if c.framework == name]
        hue = HUES[frameworks.setdefault(name, len(frameworks)) % len(HUES)]
        out.append(_tint(hue, min(0.62, 0.34 * len(seen))))
    return out


def _bar(column: Column, index: int, cell: TableCell, colour: str, top: float) -> Bar:
    value = cell.value
    if value is None or top <= 0 or value.value <= 0:
        return Bar(cell, index, column.label, colour, None, None, None, False)
    low, high = (v / top if v is not None else None for v in (value.low, value.high))
    if value.n < 2:
        low = high = None
    return Bar(cell, index, column.label, colour, value.value / top, low, high, cell.mark is Mark.BEST)


def _reach(cell: TableCell) -> float:
    if cell.value is None:
        return 0.0
    return max(cell.value.value, cell.value.high or 0.0)


def _tint(colour: str, share: float) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(p + (255 - p) * share):02X}" for p in parts)
