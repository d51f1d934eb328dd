"""The matrix in a terminal, or plain in a pipe: numbers, states, flags, and what they rest on.

Two layouts. Wide: environments side by side, metrics stacked under each workload. Narrow:
one line per cell, metrics side by side. What fits the width is taken.
"""

from __future__ import annotations

import dataclasses
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import SEPARATING_LINE, DataRow, Line, TableFormat, tabulate

from matrix.records import Record
from matrix.report import operators
from matrix.report.header import RunView, run_view
from matrix.report.matrix_table import Mark, MatrixTable, TableCell, build
from matrix.report.metrics import DEFAULT, Catalog, present, short
from matrix.report.style import Style, visible_width
from matrix.report.summary import Note, Notes, counts_text, headline, notes
from matrix.report.units import pretty, ratio
from matrix_adapters.protocol import State

_BAD = {State.INCORRECT, State.FAILED, State.OOM, State.TIMEOUT, State.BUILD_FAILED}
_MAX_NOTES = 12


def render(
    records: Sequence[Record],
    header: Mapping[str, Any],
    catalog: Catalog,
    *,
    style: Style | None = None,
    metrics: Sequence[str] = (),
    baseline: str | None = None,
    reports: Sequence[Path] = (),
) -> str:
    """The whole terminal report. `metrics` are registry ids; the default four where none are named."""
    style = style or Style()
    view = run_view(header)
    if not records:
        return style.plain(f"{view.title}: no cells were planned.") + "\n"
    matrix, checked = operators.split(records)
    blocks = [style.paint(style.plain(view.title), "bold") + _caption(view, style)]
    if matrix or not checked:
        blocks += _matrix_blocks(matrix, catalog, style, metrics, baseline)
    if checked:
        from matrix.report.operators import speed_text
        from matrix.report.operators import terminal as operators_text

        blocks += operators_text.blocks(checked, catalog, style)
        blocks += speed_text.blocks(checked, header, catalog, style)
    blocks.append(_foot(view, reports, style))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _matrix_blocks(
    records: Sequence[Record],
    catalog: Catalog,
    style: Style,
    metrics: Sequence[str],
    baseline: str | None,
) -> list[str]:
    wanted = list(metrics) or [m for m in DEFAULT if m in present(records, catalog)]
    tables = [build(records, catalog, name, baseline) for name in wanted]
    noted = notes(records, tables[0])
    draw = _Drawing(tables, noted, catalog, style)
    return [
        draw.fitted(),
        draw.legend(),
        _paragraphs([counts_text(records) + ".", *headline(tables[0])], style),
        _notes(noted, style),
    ]


@dataclasses.dataclass(frozen=True)
class _Text:
    """One cell's text in parts, so that numbers and units of a column line up."""

    word: str = ""  # a state, or "-": takes no part in the alignment
    mark: str = ""
    number: str = ""
    unit: str = ""
    tail: str = ""  # range and footnote signs, already painted
    paint: tuple[str, ...] = ()


class _Drawing:
    """The tables of one report in one style."""

    def __init__(self, tables: Sequence[MatrixTable], noted: Notes, catalog: Catalog, style: Style) -> None:
        self.tables, self.noted, self.style = tables, noted, style
        self.ranges_shown = True
        self.names = [short(catalog, t.metric_id) for t in tables]
        self.marks = {Mark.BEST: "★", Mark.TIED: "≈"} if style.unicode else {Mark.BEST: "*", Mark.TIED: "="}

    def fitted(self) -> str:
        """The first layout that fits: wide, narrow, narrow without ranges, then wide in parts."""
        columns = range(len(self.tables[0].columns))
        wide = self.wide(columns)
        if visible_width(wide) <= self.style.width:
            return wide
        if len(self.tables) > 1:
            for tight in (False, True):
                self.ranges_shown = not tight
                narrow = self.narrow(tight)
                if visible_width(narrow) <= self.style.width:
                    return narrow
        self.ranges_shown = True
        return "\n\n".join(self._parts(list(columns)))

    def wide(self, columns: Sequence[int]) -> str:
        first = self.tables[0]
        heads = ["", *(f"  {self.style.plain(first.columns[i].title)}" for i in columns)]
        details = ["", *(f"  {self.style.plain(first.columns[i].detail)}" for i in columns)]
        stacked = len(self.tables) > 1
        left: list[str] = []
        body: list[list[_Text]] = []
        breaks: list[int] = []
        for r, row in enumerate(first.rows):
            label = self._bold(self.style.plain(first.row_label(row)))
            if stacked:
                breaks.append(len(left))
                left.append(label)
                body.append([_Text()] * len(columns))
            for t, table in enumerate(self.tables):
                left.append(f"  {self.names[t]}" if stacked else label)
                body.append([self._text(table.rows[r].cells[i], t == 0) for i in columns])
        grid = self._aligned(body)
        lines: list[Any] = [[name, *cells] for name, cells in zip(left, grid, strict=True)]
        for at in reversed(breaks[1:]):
            lines.insert(at, SEPARATING_LINE)
        if first.compared_rows:
            lines += [SEPARATING_LINE, ["geomean", *(self._geomean(i) for i in columns)]]
        titles = [f"{h}\n{d}" if d.strip() else h for h, d in zip(heads, details, strict=True)]
        return self._table(lines, titles)

    def narrow(self, tight: bool) -> str:
        """One line per cell. `tight` gives up ranges, borders and one-line headings."""
        first = self.tables[0]
        left: list[str] = []
        body: list[list[_Text]] = []
        breaks: list[int] = []
        for r, row in enumerate(first.rows):
            breaks.append(len(left))
            left.append(self._bold(self.style.plain(first.row_label(row))))
            body.append([_Text()] * len(self.tables))
            for i, column in enumerate(first.columns):
                if row.cells[i] is None:
                    continue
                left.append(f"  {self.style.plain(column.label)}")
                body.append(
                    [self._text(t.rows[r].cells[i], n == 0, not tight) for n, t in enumerate(self.tables)]
                )
        grid = self._aligned(body)
        lines: list[Any] = [[name, *cells] for name, cells in zip(left, grid, strict=True)]
        for at in reversed(breaks[1:]):
            lines.insert(at, SEPARATING_LINE)
        heads = [f"  {name}" for name in self.names]
        if tight:
            heads = ["\n".join(f"  {part}" for part in name.split(" ", 1)) for name in self.names]
        return self._table(lines, ["", *heads], tight)

    def legend(self) -> str:
        best, tied = self.marks[Mark.BEST], self.marks[Mark.TIED]
        cells = [cell for table in self.tables for cell in table.cells()]
        marks = {cell.mark for cell in cells}
        said = [f"{best} best of row" if Mark.BEST in marks else ""]
        if Mark.TIED in marks:
            said.append(f"{tied} its range over launches overlaps the best's")
        if any(cell.struck for cell in cells):
            said.append(f"{self._struck('12.3 ms')} wrong numerics, not ranked")
        if self.ranges_shown and any(cell.range_text for cell in self.tables[0].cells()):
            said.append("(low-high) over launches")
        shared = ", ".join(self.tables[0].common.values())
        if shared:
            said.append(f"all rows: {shared}")
        lines = textwrap.wrap("   ".join(s for s in said if s), self.style.width)
        return "\n".join(self.style.paint(line, "dim") for line in lines)

    def _parts(self, columns: list[int]) -> list[str]:
        """As many columns a part as fit, never less than one."""
        parts: list[str] = []
        while columns:
            taken = 1
            while taken < len(columns) and visible_width(self.wide(columns[: taken + 1])) <= self.style.width:
                taken += 1
            parts.append(self.wide(columns[:taken]))
            columns = columns[taken:]
        return parts

    def _text(self, cell: TableCell | None, primary: bool, ranges: bool = True) -> _Text:
        if cell is None:
            return _Text()
        signs = "".join(f"[{s}]" for s in self.noted.signs(cell.record.id)) if primary else ""
        signs = self.style.paint(signs, "yellow") if cell.state is State.OK else signs
        if cell.value is None and cell.state is not State.OK:
            return _Text(word=f"{self._state(cell.state)} {signs}".rstrip() if primary else "")
        if cell.struck:
            shown = self._struck(cell.text)
            return _Text(word=f"{self._state(cell.state)} {signs} {shown}" if primary else shown)
        number, _, unit = cell.text.partition(" ")
        if unit.startswith(("-", "+")):  # "1 - 2.1e-10" is one number
            number, unit = cell.text, ""
        spread = f" ({cell.range_text})" if ranges and primary and cell.range_text else ""
        tail = self.style.paint(spread, "dim") + (f" {signs}" if signs else "")
        paint = {Mark.BEST: ("bold", "green"), Mark.TIED: ("green",)}.get(cell.mark, ())
        return _Text("", self.marks.get(cell.mark, ""), number, self._micro(unit), tail, paint)

    def _aligned(self, body: list[list[_Text]]) -> list[list[str]]:
        out: list[list[str]] = [[] for _ in body]
        for column in zip(*body, strict=True):
            wide = max((len(t.number) for t in column), default=0)
            units = max((len(t.unit) for t in column), default=0)
            for line, text in zip(out, column, strict=True):
                if text.number:
                    unit = f" {text.unit:<{units}}" if units else ""
                    shown = f"{text.mark or ' '} {text.number:>{wide}}{unit}"
                    line.append(self.style.paint(shown, *text.paint) + text.tail)
                else:
                    line.append(f"  {text.word}" if text.word else "")
        return out

    def _geomean(self, column: int) -> str:
        summary = self.tables[0].summaries[column]
        mean = "-" if summary.geomean is None else self._micro(ratio(summary.geomean))
        return f"  {mean}  ({summary.ok}/{summary.planned} ok)"

    def _table(self, lines: list[Any], heads: list[str], tight: bool = False) -> str:
        options: dict[str, Any] = {"disable_numparse": True, "preserve_whitespace": True}
        painted = [[self._bold(part) for part in head.split("\n")] for head in heads]
        if self.style.unicode and not tight:
            titles = ["\n".join(parts) for parts in painted]
            return tabulate(lines, headers=titles, tablefmt="rounded_outline", **options)
        gap = " " if tight else "  "
        rule = Line("", "─" if self.style.unicode else "-", gap, "")
        bare = TableFormat(None, rule, None, None, DataRow("", gap, ""), DataRow("", gap, ""), 0, None)
        above = [list(parts) for parts in itertools.zip_longest(*painted, fillvalue="")]
        text = tabulate([*above, SEPARATING_LINE, *lines], tablefmt=bare, **options)
        return "\n".join(line.rstrip() for line in text.splitlines())

    def _state(self, state: State) -> str:
        return self.style.paint(state.value, "red" if state in _BAD else "yellow")

    def _struck(self, text: str) -> str:
        return self.style.paint(text, "strike", "dim") if self.style.colour else f"~~{text}~~"

    def _bold(self, text: str) -> str:
        return self.style.paint(text, "bold")

    def _micro(self, text: str) -> str:
        return pretty(text) if self.style.unicode else text


def _caption(view: RunView, style: Style) -> str:
    words = [w for w in (view.created, view.duration) if w]
    return style.plain(f"  {', '.join(words)}" if words else "")


def _paragraphs(sentences: Sequence[str], style: Style) -> str:
    said = [pretty(s) if style.unicode else s for s in sentences]
    return "\n".join(textwrap.fill(style.plain(s), style.width) for s in said)


def _notes(noted: Notes, style: Style) -> str:
    blocks = []
    for title, group in (
        ("Not ok", noted.reasons),
        ("Flags: what to distrust", noted.flags),
        ("Not ranked", noted.remarks),
    ):
        if group:
            lines = [_note(note, style) for note in group[:_MAX_NOTES]]
            if len(group) > _MAX_NOTES:
                lines.append(f"  ... and {len(group) - _MAX_NOTES} more, in the reports")
            blocks.append("\n".join([style.paint(title, "bold"), *lines]))
    return "\n".join(blocks)


def _note(note: Note, style: Style) -> str:
    cells = f"{note.count} cell{'' if note.count == 1 else 's'}"
    text = style.plain(f"{note.head}, {cells}: {note.text}")
    sign = f"[{note.sign}]"
    wrapped = textwrap.wrap(text, max(20, style.width - 6), max_lines=4, placeholder=" ...")
    first, *rest = wrapped or [""]
    return "\n".join([f"  {sign:<4}{first}", *(f"      {line}" for line in rest)])


def _report_lines(reports: Sequence[Path]) -> list[tuple[str, str]]:
    """The page's path, whole, and what else lies beside it; every path where they are scattered."""
    if len({path.parent for path in reports}) != 1:
        return [("reports", str(path)) for path in reports]
    first = next((path for path in reports if path.suffix == ".html"), reports[0])
    others = ", ".join(path.suffix for path in reports if path != first)
    return [("reports", str(first)), ("", f"and {others} beside it" if others else "")]


def _fact(name: str, value: str) -> str:
    """A machine fact as people say it: "2 cores", "kernel 6.12", and a CPU's name by itself."""
    if name == "cores":
        return f"{value} cores"
    if name in ("CPU", "memory", "system") or " " in value:  # "CPython 3.11.7" says it all
        return value
    return f"{name} {value}"


def _foot(view: RunView, reports: Sequence[Path], style: Style) -> str:
    lines = [
        ("machine", ", ".join(_fact(k, v) for k, v in view.machine)),
        ("load", ", ".join(f"{when} {value}" for when, value in view.load)),
        ("overhead", view.overhead and f"{view.overhead}: the loop around an adapter that does nothing"),
        ("backend", view.backend),
        *(("warning", w) for w in view.warnings),
        *_report_lines(reports),
    ]
    shown: list[str] = []
    for name, value in lines:
        if value:
            text = style.plain(pretty(value) if style.unicode else value)
            wrap = name != "reports"  # a path that is broken in two cannot be clicked
            folded = textwrap.wrap(text, max(20, style.width - 10)) if wrap else [text]
            label = style.paint(f"{name:<10}", "yellow" if name == "warning" else "dim")
            shown.append(label + f"\n{'':10}".join(folded))
    return "\n".join(shown)
