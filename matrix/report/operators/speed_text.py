"""The speed table as text: a line for each case, and below it one for each environment."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record
from matrix.report.metrics import Catalog
from matrix.report.operators import speed
from matrix.report.operators.speed import Reached, SpeedTable
from matrix.report.placing import Column
from matrix.report.style import Style, visible_width
from matrix.report.units import pretty
from matrix_adapters.protocol import State


def blocks(records: Sequence[Record], header: Mapping[str, Any], catalog: Catalog, style: Style) -> list[str]:
    """Paragraphs, ready to be joined by empty lines; none where no operator was timed."""
    table = speed.build(records, header, catalog)
    if table is None:
        return []
    said = "\n".join(textwrap.fill(_text(s, style), style.width) for s in table.sentences())
    return [_drawn(table, style), said] if said else [_drawn(table, style)]


def _drawn(table: SpeedTable, style: Style) -> str:
    labels = [f"  {style.plain(label)}" for label in _labels(table.columns)]
    words = [[_words(entry, style) if entry else None for entry in row.entries] for row in table.rows]
    shown = [line for row in words for line in row if line]
    widths = [max(len(head), *(len(line[n]) for line in shown)) for n, head in enumerate(speed.HEADS)]
    left = max(visible_width(label) for label in labels)
    gap = "  " if left + sum(w + 2 for w in widths) <= style.width else " "
    rule = ("─" if style.unicode else "-") * (left + sum(w + len(gap) for w in widths))
    out = [style.paint("Speed", "bold"), _line("", speed.HEADS, left, widths, gap), rule]
    for row, lines in zip(table.rows, words, strict=True):
        out += _head(row.name, row.facts(threads=table.several_threads), style)
        for label, entry, line in zip(labels, row.entries, lines, strict=True):
            if entry is not None and line is not None:
                out.append(_painted(_line(label, line, left, widths, gap), entry, style))
    legend = textwrap.wrap(_text(speed.LEGEND, style), style.width)
    return "\n".join([*out, rule, *(style.paint(line, "dim") for line in legend)])


def _head(name: str, facts: str, style: Style) -> list[str]:
    """The case, and its work beside it, or below where that does not fit."""
    plain, told = style.plain(name), _text(facts, style)
    first = style.paint(plain, "bold")
    if len(plain) + 2 + len(told) <= style.width:
        return [f"{first}  {style.paint(told, 'dim')}".rstrip()]
    wrapped = textwrap.wrap(told, style.width - 4)
    return [first, *(f"    {style.paint(line, 'dim')}" for line in wrapped)]


def _labels(columns: Sequence[Column]) -> list[str]:
    """Titles, with their details only where they tell columns apart: lines are wide enough."""
    titles = [column.title for column in columns]
    return titles if len(set(titles)) == len(titles) else [column.label for column in columns]


def _words(entry: Reached, style: Style) -> list[str]:
    latency, *rest = entry.words()
    if entry.struck:
        latency = f"{entry.state_word} ~~{latency}~~"
    return [_text(word, style) for word in (latency, *rest)]


def _line(name: str, cells: Sequence[str], left: int, widths: Sequence[int], gap: str) -> str:
    return "".join([name.ljust(left), *(gap + c.rjust(w) for c, w in zip(cells, widths, strict=True))])


def _painted(line: str, entry: Reached, style: Style) -> str:
    return line if entry.state is State.OK else style.paint(line, "yellow")


def _text(text: str, style: Style) -> str:
    plain = style.plain(text)
    return pretty(plain) if style.unicode else plain
