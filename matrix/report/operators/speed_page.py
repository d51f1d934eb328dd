"""The speed table as data for the page's template."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record
from matrix.report.metrics import Catalog
from matrix.report.operators import speed
from matrix.report.operators.speed import Reached, SpeedRow, SpeedTable


@dataclasses.dataclass(frozen=True)
class SpeedView:
    """All that the template draws of timed operators."""

    table: SpeedTable
    said: list[str]
    heads: tuple[str, ...] = speed.HEADS
    legend: str = speed.LEGEND

    def label(self, row: SpeedRow, entry: Reached) -> str:
        """The environment of an entry of that row."""
        return next(c.label for c, e in zip(self.table.columns, row.entries, strict=True) if e is entry)


def speed_view(records: Sequence[Record], header: Mapping[str, Any], catalog: Catalog) -> SpeedView | None:
    """None where no operator was timed."""
    table = speed.build(records, header, catalog)
    return None if table is None else SpeedView(table, table.sentences())
