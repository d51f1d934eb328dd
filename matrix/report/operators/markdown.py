"""The pass table and its differences as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from matrix.records import Record
from matrix.report.markdown import code, escape
from matrix.report.metrics import Catalog
from matrix.report.operators import case_book, findings, pass_table, said
from matrix.report.operators.pass_table import Entry, PassTable


def render(records: Sequence[Record], catalog: Catalog) -> list[str]:
    """Lines: the headline, families in sight, operators and every finding folded below."""
    book = case_book.case_book(catalog)
    table = pass_table.build(records, catalog, book)
    found = findings.find(table, book)
    out = ["**Operators**", "", *(f"- {escape(sentence)}" for sentence in said.headline(table, found)), ""]
    out += [*_families(table), ""]
    out += _folded(f"All {table.operators} operators", _operators(table))
    out += _folded(f"Differences ({len(found.differences)})", _differences(found))
    out += _folded(f"Differs by definition ({len(found.open)})", _open(found))
    out += _folded(f"Unsupported ({sum(e.count for e in found.unsupported)})", _ended(found.unsupported))
    out += _folded(f"Did not end ({sum(e.count for e in found.ended)})", _ended(found.ended))
    return out


def _families(table: PassTable) -> list[str]:
    lines = [(escape(family.name), family.entries) for family in table.families]
    return _table(table, [*lines, ("**all**", table.totals)])


def _operators(table: PassTable) -> list[str]:
    lines = []
    for family in table.families:
        lines.append((f"**{escape(family.name)}**", family.entries))
        lines += [(code(row.name), row.entries) for row in family.rows]
    return _table(table, lines)


def _table(table: PassTable, lines: Sequence[tuple[str, Sequence[Entry]]]) -> list[str]:
    heads = [
        f"{escape(c.title)}<br>{escape(c.detail)}" if c.detail else escape(c.title) for c in table.columns
    ]
    rows = [["", *heads], [":--", *(":--" for _ in heads)]]
    rows += [[name, *(_entry(entry) for entry in entries)] for name, entries in lines]
    return [f"| {' | '.join(row)} |" for row in rows]


def _entry(entry: Entry) -> str:
    return said.entry_words(entry) if entry.total else ""


def _differences(found: findings.Findings) -> list[str]:
    out: list[str] = []
    for one in found.differences:
        out += [f"- {code(said.title(one))}: {escape(one.inputs)}"]
        for answer in one.answers:
            facts = "; ".join(
                f"{escape(text)}" if name == "failed" else f"{name} {escape(text)}"
                for name, text in said.evidence(answer)
            )
            out.append(f"  - {escape(answer.column)}: {facts}")
    return out


def _open(found: findings.Findings) -> list[str]:
    out: list[str] = []
    for one in found.open:
        out += [
            f"- {code(f'{one.case} {one.dtype}')}: {escape(one.why)}",
            f"  - {escape(one.inputs)}",
            f"  - {escape(one.place)}: reference {escape(one.reference)}, "
            + ", ".join(f"{escape(name)} **{escape(value)}**" for name, value in one.answers),
        ]
    return out


def _ended(ended: Sequence[findings.Ended]) -> list[str]:
    return [
        f"- {escape(one.column)}, {escape(one.state.value)}, {one.count}: {escape(said.ended_reason(one))} "
        f"({escape(said.ended_operators(one))})"
        for one in ended
    ]


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    return ["<details>", f"<summary>{escape(title)}</summary>", "", *lines, "", "</details>", ""]
