"""The comparison matrix as data: one workload a row, one environment a column, one metric.

Every record appears in exactly one cell. What a view may say about a cell's rank is decided
here, once: only `ok` cells of a ranked metric, measured under one contract and without a
fallback, compete; whatever else there is keeps its state, and its number where it has one.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from matrix.consolidate.contract import COMPARED, brief
from matrix.errors import UsageError
from matrix.records import MetricValue, Record
from matrix.report.metrics import FROM_PARITY, Catalog, Metric, metric, value_of
from matrix.report.placing import Column, RowKey, place
from matrix.report.units import Scale, scale_for
from matrix_adapters.protocol import State


class Mark(enum.StrEnum):
    """A cell's place in its row."""

    NONE = ""
    BEST = "best"
    TIED = "tied"  # its range over launches overlaps the best cell's


@dataclasses.dataclass(frozen=True, slots=True)
class TableCell:
    """One record seen through one metric."""

    record: Record
    value: MetricValue | None  # None: no believable or wrong-but-telling number; `why` says why
    text: str  # "82.3 ms", or the state's word
    range_text: str = ""  # "82.0-84.1", in the text's unit
    mark: Mark = Mark.NONE
    ratio: float | None = None  # value / best of row
    versus: float | None = None  # value / baseline column
    why: str = ""  # why it has no rank or no value, in words
    struck: bool = False  # the speed of wrong numerics: shown struck through

    @property
    def state(self) -> State:
        return self.record.state


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One workload: its cells by column index; None where nothing was planned."""

    key: RowKey
    cells: tuple[TableCell | None, ...]
    scale: Scale


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnSummary:
    """A column over all rows: how many are ok, and its geometric mean ratio to the baseline."""

    planned: int
    ok: int
    geomean: float | None  # None: no row is comparable in every column that counts
    rows: int  # how many rows the geometric mean is over


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixTable:
    """The whole matrix for one metric."""

    metric_id: str
    metric: Metric
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    summaries: tuple[ColumnSummary, ...]
    baseline: int | None  # column the ratios of the summaries are to
    common: Mapping[str, str]  # parameters that all rows share, by name

    def cells(self) -> list[TableCell]:
        return [c for row in self.rows for c in row.cells if c is not None]

    def row_label(self, row: Row) -> str:
        return row.key.label(without=self.common)

    @property
    def compared_rows(self) -> int:
        return max((s.rows for s in self.summaries), default=0)


def build(
    records: Sequence[Record], catalog: Catalog, metric_id: str, baseline: str | None = None
) -> MatrixTable:
    """Arrange `records` for one metric. `baseline` is a column's label or environment name.

    Raises UsageError for an unknown metric or baseline.
    """
    entry = metric(catalog, metric_id)
    columns, placed = place(records, catalog)
    chosen = _find_baseline(columns, baseline) if baseline else None
    rows = [_row(key, cells, len(columns), metric_id, entry) for key, cells in placed.items()]
    rivals = [i for i in range(len(columns)) if any(_ranks(row.cells[i]) for row in rows)]
    if len(rivals) < 2 or not entry.ranked:  # one column alone is no comparison
        rivals = []
    shared = [row for row in rows if rivals and all(_ranks(row.cells[i]) for i in rivals)]
    if chosen is None:
        chosen = _best_column(shared, rivals, entry)
    rows = [dataclasses.replace(row, cells=_versus(row.cells, chosen)) for row in rows]
    shared = [row for row in rows if rivals and all(_ranks(row.cells[i]) for i in rivals)]
    summaries = tuple(_summary(rows, shared, i, chosen, i in rivals) for i in range(len(columns)))
    keys = [row.key.parts() for row in rows]
    common = {n: t for n, t in (keys[0].items() if keys else ()) if all(k.get(n) == t for k in keys)}
    return MatrixTable(metric_id, entry, columns, tuple(rows), summaries, chosen, common)


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """exp(mean(log r)); None of nothing. Swapping both sides of every ratio gives the inverse."""
    if not ratios:
        return None
    return math.exp(math.fsum(math.log(r) for r in ratios) / len(ratios))


def shows_numbers(record: Record) -> bool:
    """Whether the matrix shows this cell's numbers; what a stopped one had so far is in its details."""
    return record.state in (State.OK, State.INCORRECT)


def _row(key: RowKey, records: dict[int, Record], width: int, metric_id: str, entry: Metric) -> Row:
    values = {i: value_of(r, metric_id) if shows_numbers(r) else None for i, r in records.items()}
    scale = scale_for([v.value for v in values.values() if v is not None], entry.unit)
    usual = _usual_contract(records.values())
    cells: list[TableCell | None] = [None] * width
    for i, record in records.items():
        cells[i] = _cell(record, values[i], metric_id, scale, usual)
    if entry.ranked:
        cells = _mark(cells, entry)
    return Row(key, tuple(cells), scale)


def _cell(
    record: Record, value: MetricValue | None, metric_id: str, scale: Scale, usual: Mapping[str, object]
) -> TableCell:
    why = _why_unranked(record, usual)
    if value is None:
        missing = record.absent.get(metric_id) or ("" if record.state is not State.OK else "not measured")
        text = "-" if record.state is State.OK else record.state.value
        return TableCell(record, None, text, why=missing or why)
    spread = ""
    if value.low is not None and value.high is not None and value.n > 1:
        spread = f"{scale.number(value.low)}-{scale.number(value.high)}"
    struck = record.state is State.INCORRECT and metric_id not in FROM_PARITY
    return TableCell(record, value, scale.text(value.value), spread, why=why, struck=struck)


def _why_unranked(record: Record, usual: Mapping[str, object]) -> str:
    """Why this cell takes no part in the ranking of its row; empty when it does."""
    if record.state is not State.OK:
        return record.reason.text if record.reason else record.state.value
    for flag in record.flags:
        if "fallback" in flag.code:
            return flag.text
    for field, expected in usual.items():
        got = record.contract.get(field)
        if got is not None and got != expected:  # what a framework cannot say is no difference
            return f"not comparable: {field} differs ({brief(got)}, others {brief(expected)})"
    return ""


def _usual_contract(records: Iterable[Record]) -> dict[str, object]:
    """Per compared field, what most ok cells of the row have (the first seen wins a draw)."""
    usual: dict[str, object] = {}
    kept = [r for r in records if r.state is State.OK]
    for field in COMPARED:
        seen = [r.contract[field] for r in kept if r.contract.get(field) is not None]
        if seen:
            most = Counter(str(v) for v in seen).most_common(1)[0][0]
            usual[field] = next(v for v in seen if str(v) == most)
    return usual


def _ranks(cell: TableCell | None) -> bool:
    """In the running: an ok cell with a positive number and nothing that spoils the comparison."""
    return cell is not None and cell.value is not None and not cell.why and cell.value.value > 0


def _mark(cells: list[TableCell | None], entry: Metric) -> list[TableCell | None]:
    """Mark the best of a row, and those that its launches cannot tell apart from it."""
    running = [cell for cell in cells if cell is not None and _ranks(cell)]
    if len(running) < 2:
        return cells
    lower = entry.better == "lower"
    best = (min if lower else max)(running, key=_value)
    marked: list[TableCell | None] = []
    for cell in cells:
        if cell is None or not _ranks(cell):
            marked.append(cell)
            continue
        mark = Mark.BEST if _value(cell) == _value(best) else Mark.NONE
        if mark is Mark.NONE and _overlap(cell, best):
            mark = Mark.TIED
        marked.append(dataclasses.replace(cell, mark=mark, ratio=_value(cell) / _value(best)))
    return marked


def _value(cell: TableCell) -> float:
    assert cell.value is not None  # noqa: S101 - callers pass ranked cells only
    return cell.value.value


def _overlap(one: TableCell, other: TableCell) -> bool:
    a, b = one.value, other.value
    if a is None or b is None or a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low <= b.high and b.low <= a.high


def _versus(cells: tuple[TableCell | None, ...], baseline: int | None) -> tuple[TableCell | None, ...]:
    base = cells[baseline] if baseline is not None else None
    if base is None or not _ranks(base):
        return cells
    return tuple(
        dataclasses.replace(c, versus=_value(c) / _value(base)) if c is not None and _ranks(c) else c
        for c in cells
    )


def _best_column(shared: list[Row], rivals: list[int], entry: Metric) -> int | None:
    means = {i: geometric_mean([_value(c) for row in shared if (c := row.cells[i])]) for i in rivals}
    known = {i: mean for i, mean in means.items() if mean is not None}
    if not known:
        return None
    return (min if entry.better == "lower" else max)(known, key=lambda i: known[i])


def _summary(
    rows: list[Row], shared: list[Row], column: int, baseline: int | None, counts: bool
) -> ColumnSummary:
    cells = [cell for row in rows if (cell := row.cells[column])]
    ratios = [c.versus for row in shared if (c := row.cells[column]) and c.versus is not None]
    return ColumnSummary(
        planned=len(cells),
        ok=sum(cell.state is State.OK for cell in cells),
        geomean=geometric_mean(ratios) if counts and baseline is not None else None,
        rows=len(ratios) if counts else 0,
    )


def _find_baseline(columns: Sequence[Column], name: str) -> int:
    for i, column in enumerate(columns):
        if name in (column.label, column.key[0]):
            return i
    known = ", ".join(dict.fromkeys(c.key[0] for c in columns))
    raise UsageError(f"no column is called {name!r}: the environments here are {known}")
