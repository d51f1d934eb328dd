"""The operators' part of the page as data for the template."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matrix.records import Record
from matrix.report.chart import colours
from matrix.report.metrics import Catalog
from matrix.report.operators import case_book, findings, pass_table
from matrix.report.operators.findings import Findings
from matrix.report.operators.pass_table import PassTable
from matrix.report.operators.said import ended_operators, ended_reason, evidence, headline


@dataclasses.dataclass(frozen=True)
class OperatorsView:
    """All that the template draws of operators."""

    table: PassTable
    found: Findings
    said: list[str]
    colours: list[str]

    evidence = staticmethod(evidence)
    ended_operators = staticmethod(ended_operators)
    ended_reason = staticmethod(ended_reason)


def operators_view(records: Sequence[Record], catalog: Catalog) -> OperatorsView | None:
    """None where no operator was checked."""
    if not records:
        return None
    book = case_book.case_book(catalog)
    table = pass_table.build(records, catalog, book)
    found = findings.find(table, book)
    return OperatorsView(table, found, headline(table, found), colours(table.columns))
