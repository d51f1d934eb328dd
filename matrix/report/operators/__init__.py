"""The report of operator cells: which cases pass where, and every difference with its evidence.

    case_words   a case's inputs in words
    case_book    what the catalog knows of the cases that the records name
    pass_table   operators by environments: how many cases of each pass
    findings     what did not: wrong answers, open ones side by side, what a framework does not have
    terminal, markdown, page   the same, drawn
    speed        of those that were timed: rates, shares of the roof, what a call costs
    speed_said   what is said about them in sentences
    speed_text, speed_markdown, speed_page   the same, drawn

Cells of other levels are the matrix's; `split` tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from matrix.records import OPERATOR, Record


def split(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Those of the matrix, and those of operators; a timed operator cell is in both."""
    matrix: list[Record] = []
    operators: list[Record] = []
    for record in records:
        checked = record.workload.level == OPERATOR
        if checked:
            operators.append(record)
        if not checked or "latency_ms" in record.metrics:
            matrix.append(record)
    return matrix, operators
