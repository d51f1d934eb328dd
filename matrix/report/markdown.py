"""The matrix as GitHub-flavoured Markdown: for a pull request, an issue or a README."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record
from matrix.report import operators
from matrix.report.header import run_view
from matrix.report.matrix_table import Mark, MatrixTable, TableCell, build
from matrix.report.metrics import DEFAULT, Catalog, present
from matrix.report.summary import Note, Notes, counts_text, headline, notes
from matrix.report.units import pretty, ratio
from matrix_adapters.protocol import State


def render(
    records: Sequence[Record],
    header: Mapping[str, Any],
    catalog: Catalog,
    *,
    metrics: Sequence[str] = (),
    baseline: str | None = None,
) -> str:
    """One table in sight, the other metrics folded below it."""
    view = run_view(header)
    out = [f"### {escape(view.title)}", ""]
    if not records:
        return "\n".join([*out, "No cells were planned.", ""])
    matrix, checked = operators.split(records)
    if matrix or not checked:
        out += _matrix(matrix, catalog, metrics, baseline)
    if checked:
        from matrix.report.operators import markdown as operators_text
        from matrix.report.operators import speed_markdown

        out += operators_text.render(checked, catalog)
        out += speed_markdown.render(checked, header, catalog)
    facts = [
        ("Machine", ", ".join(f"{k} {v}" for k, v in view.machine)),
        ("Load", ", ".join(f"{when} {value}" for when, value in view.load)),
        ("Overhead of the loop itself", view.overhead),
        ("Environments", view.backend),
        ("Run", " ".join(w for w in (view.id, view.created, view.duration) if w)),
        *(("Warning", w) for w in view.warnings),
    ]
    out += [f"- {name}: {escape(pretty(value))}" for name, value in facts if value]
    return "\n".join(out) + "\n"


def _matrix(
    records: Sequence[Record], catalog: Catalog, metrics: Sequence[str], baseline: str | None
) -> list[str]:
    wanted = list(metrics) or [m for m in DEFAULT if m in present(records, catalog)]
    tables = [build(records, catalog, name, baseline) for name in wanted]
    noted = notes(records, tables[0])
    out = [" ".join(escape(pretty(s)) for s in headline(tables[0])), ""] if headline(tables[0]) else []
    out += [_table(tables[0], noted), "", _legend(tables), ""]
    out += [escape(counts_text(records)) + ".", ""]
    for title, group in (
        ("Not ok", noted.reasons),
        ("Flags: what to distrust", noted.flags),
        ("Not ranked", noted.remarks),
    ):
        if group:
            out += [f"**{title}**", "", *(_note(note) for note in group), ""]
    for table in tables[1:]:
        title = escape(table.metric.title)
        out += ["<details>", f"<summary>{title}</summary>", "", _table(table, noted), "", "</details>", ""]
    return out


def escape(text: str) -> str:
    """Text from outside as plain Markdown: no markup, no HTML, one line, safe in a table cell."""
    flat = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|~@]|(?<!\w)_|_(?!\w)|(?<!\w)#)", _guard, flat)


def code(text: str) -> str:
    """A name as a code span that survives in a table cell."""
    flat = re.sub(r"[\x00-\x1f\x7f`]+", " ", text)
    return f"`{flat.replace('|', chr(92) + '|')}`"


def _guard(match: re.Match[str]) -> str:
    sign = match[1]
    return f"&#{ord(sign)};" if sign == "@" else f"\\{sign}"  # a backslash does not stop a mention


def _table(table: MatrixTable, noted: Notes) -> str:
    heads = [
        "",
        *(f"{escape(c.title)}<br>{escape(c.detail)}" if c.detail else escape(c.title) for c in table.columns),
    ]
    lines = [heads, [":--", *("--:" for _ in table.columns)]]
    for row in table.rows:
        subject, _, rest = table.row_label(row).partition(", ")
        label = code(subject) + (f" {escape(rest)}" if rest else "")
        lines.append([label, *(_cell(cell, noted) for cell in row.cells)])
    if table.compared_rows:
        n = table.compared_rows
        label = f"geometric mean of the ratio, {n} row{'' if n == 1 else 's'}"
        lines.append([label, *(_mean(s.geomean, s.ok, s.planned) for s in table.summaries)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: TableCell | None, noted: Notes) -> str:
    if cell is None:
        return ""
    signs = "".join(f"<sup>{sign}</sup>" for sign in noted.signs(cell.record.id))
    text = escape(pretty(cell.text)).replace(" ", "&nbsp;")
    if cell.value is None:
        return (escape(cell.state.value) if cell.state is not State.OK else "-") + signs
    if cell.struck:
        return f"{escape(cell.state.value)}{signs} ~~{text}~~"
    if cell.state is not State.OK:
        return f"{text} {escape(cell.state.value)}{signs}"
    if cell.mark is Mark.BEST:
        text = f"**{text}**"
    elif cell.mark is Mark.TIED:
        text = f"{text}&nbsp;≈"
    return text + signs


def _mean(value: float | None, ok: int, planned: int) -> str:
    mean = "-" if value is None else pretty(ratio(value))
    return f"{mean} ({ok}/{planned} ok)"


def _legend(tables: Sequence[MatrixTable]) -> str:
    table = tables[0]
    shared = ", ".join(table.common.values())
    said = [f"{escape(table.metric.title)}, {table.metric.better} is better"]
    said += [f"every row: {escape(shared)}"] if shared else []
    marks = {cell.mark for cell in table.cells()}
    said += ["**bold**: best of row"] if Mark.BEST in marks else []
    said += ["≈: its range over launches overlaps the best's"] if Mark.TIED in marks else []
    said += ["~~struck~~: wrong numerics, not ranked"] if any(c.struck for c in table.cells()) else []
    return f"<sub>{'; '.join(said)}.</sub>"


def _note(note: Note) -> str:
    cells = f"{note.count} cell{'' if note.count == 1 else 's'}"
    return f"- <sup>{note.sign}</sup> {escape(note.head)}, {cells}: {escape(note.text)}"
