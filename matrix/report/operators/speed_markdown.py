"""The speed table as GitHub-flavoured Markdown: one line for each case and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record
from matrix.report.markdown import code, escape
from matrix.report.metrics import Catalog
from matrix.report.operators import speed
from matrix.report.operators.speed import Reached
from matrix.report.units import pretty


def render(records: Sequence[Record], header: Mapping[str, Any], catalog: Catalog) -> list[str]:
    """Lines; none where no operator was timed."""
    table = speed.build(records, header, catalog)
    if table is None:
        return []
    heads = ["case", "work", "environment", *speed.HEADS]
    out = ["**Speed of operators**", "", f"| {' | '.join(heads)} |", "| :-- | :-- | :-- |" + " --: |" * 5]
    for row in table.rows:
        facts = row.facts(threads=table.several_threads)
        for column, entry in zip(table.columns, row.entries, strict=True):
            if entry is not None:
                cells = [code(row.name), escape(pretty(facts)), escape(column.label), *_cells(entry)]
                out.append(f"| {' | '.join(cells)} |")
    legend = escape(pretty(speed.LEGEND))
    return [*out, "", f"<sub>{legend}</sub>", "", *(f"- {escape(pretty(s))}" for s in table.sentences()), ""]


def _cells(entry: Reached) -> list[str]:
    latency, *rest = [escape(pretty(word)).replace(" ", "&nbsp;") for word in entry.words()]
    return [f"{escape(entry.state_word)} ~~{latency}~~" if entry.struck else latency, *rest]
