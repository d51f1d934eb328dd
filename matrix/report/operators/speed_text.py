"""The speed table as text: a line for each case, and below it one for each environment."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record
from matrix.report.metrics import Catalog
from matrix.report.operators import speed
from matrix.report.operators.speed import Reached, SpeedTable
from matrix.report.style import Style, visible_width
from matrix.report.units import pretty
from matrix_adapters.protocol import State


def blocks(
    records: Sequence[Record], header: Mapping[str, Any], catalog: Catalog, style: Style
) -> list[str]:
    """Paragraphs, ready to be joined by empty lines; none where no operator was timed."""
    table = speed.build(records, header, catalog)
    if table is None:
        return []
    sentences = [*table.said, *map(speed.sum_words, table.sums)]
    said = "\n".join(textwrap.fill(_text(s, style), style.width) for s in sentences)
    return [_drawn(table, style), said] if said else [_drawn(table, style)]


def _drawn(table: SpeedTable, style: Style) -> str:
    labels = [f"  {style.plain(column.label)}" for column in table.columns]
    words = [[entry.words() if entry else None for entry in row.entries] for row in table.rows]
    shown = [line for row in words for line in row if line]
    widths = [max(len(head), *(len(line[n]) for line in shown)) for n, head in enumerate(speed.HEADS)]
    left = max(visible_width(label) for label in labels)
    rule = ("─" if style.unicode else "-") * (left + sum(w + 2 for w in widths))
    out = [style.paint("Speed", "bold"), _line("", speed.HEADS, left, widths), rule]
    for row, lines in zip(table.rows, words, strict=True):
        facts = row.facts(threads=table.several_threads)
        name = style.paint(style.plain(row.name), "bold")
        out.append(f"{name}  {style.paint(_text(facts, style), 'dim')}".rstrip())
        for label, entry, line in zip(labels, row.entries, lines, strict=True):
            if entry is not None and line is not None:
                out.append(_painted(_line(label, [_text(w, style) for w in line], left, widths), entry, style))
    out += [rule, *(style.paint(line, "dim") for line in textwrap.wrap(speed.LEGEND, style.width))]
    return "\n".join(out)


def _line(name: str, cells: Sequence[str], left: int, widths: Sequence[int]) -> str:
    return "".join([name.ljust(left), *("  " + c.rjust(w) for c, w in zip(cells, widths, strict=True))])


def _painted(line: str, entry: Reached, style: Style) -> str:
    return line if entry.state is State.OK else style.paint(line, "yellow")


def _text(text: str, style: Style) -> str:
    plain = style.plain(text)
    return pretty(plain) if style.unicode else plain
