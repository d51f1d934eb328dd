"""The speed table as GitHub-flavoured Markdown: one line for each case and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record
from matrix.report.markdown import code, escape
from matrix.report.metrics import Catalog
from matrix.report.operators import speed
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
                cells = [code(row.name), escape(facts), escape(column.label), *map(_cell, entry.words())]
                out.append(f"| {' | '.join(cells)} |")
    said = [*table.said, *map(speed.sum_words, table.sums)]
    return [*out, "", f"<sub>{escape(speed.LEGEND)}</sub>", "", *(f"- {escape(s)}" for s in said), ""]


def _cell(text: str) -> str:
    return escape(pretty(text)).replace(" ", "&nbsp;")
