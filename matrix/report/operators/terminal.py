"""The pass table and its differences as text: for a terminal, where operators that pass everywhere
share a line, and for a file or a pipe, where every operator has its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TypeVar

from matrix.records import Record
from matrix.report.metrics import Catalog
from matrix.report.operators import case_book, findings, pass_table, said
from matrix.report.operators.pass_table import Entry, Family, OperatorRow, PassTable
from matrix.report.style import Style, visible_width

_T = TypeVar("_T")

#: of each list, in a terminal; the files beside it have all
_MOST = 25
_GAP = "  "
#: letters for what did not pass, where the words do not fit
_SHORT = {
    pass_table.DIFFERS_WORDS: "d",
    "incorrect": "i",
    "failed": "f",
    "oom": "m",
    "timeout": "t",
    "build failed": "b",
    "unsupported": "u",
    "unavailable": "a",
    "interrupted": "s",
    "not run": "n",
}
_BAD = ("incorrect", "failed", "oom", "timeout", "build failed")


def blocks(records: Sequence[Record], catalog: Catalog, style: Style) -> list[str]:
    """Paragraphs of the operators' report, ready to be joined by empty lines."""
    book = case_book.case_book(catalog)
    table = pass_table.build(records, catalog, book)
    found = findings.find(table, book)
    draw = _Drawing(table, style)
    return [
        block
        for block in (
            draw.fitted(),
            _wrapped(said.headline(table, found), style),
            _differences(found, style),
            _open(found, style),
            _ended("Unsupported", found.unsupported, style),
            _ended("Did not end", found.ended, style),
        )
        if block
    ]


class _Drawing:
    """The table in one style: words where they fit, letters where not, in parts where not even they do."""

    def __init__(self, table: PassTable, style: Style) -> None:
        self.table, self.style = table, style
        self.terminal = style.colour or style.unicode

    def fitted(self) -> str:
        columns = list(range(len(self.table.columns)))
        for short in (False, True):
            text = self._drawn(columns, short)
            if visible_width(text) <= self.style.width:
                return text
        parts = []
        while columns:
            taken = 1
            while taken < len(columns) and self._fits(columns[: taken + 1]):
                taken += 1
            parts.append(self._drawn(columns[:taken], short=True))
            columns = columns[taken:]
        return "\n\n".join(parts)

    def _fits(self, columns: list[int]) -> bool:
        return visible_width(self._drawn(columns, short=True)) <= self.style.width

    def _drawn(self, columns: list[int], short: bool) -> str:
        lines: list[tuple[str, list[Entry]] | str] = []
        for family in self.table.families:
            lines.append((self._bold(family.name), [family.entries[i] for i in columns]))
            lines += self._rows(family, columns)
        lines.append((self._bold("all"), [self.table.totals[i] for i in columns]))
        drawn = [(left, [self._entry(e, short) for e in entries]) for left, entries in _cells(lines)]
        heads = [
            [self._bold(self.style.plain(text)) for text in (column.title, column.detail)]
            for column in (self.table.columns[i] for i in columns)
        ]
        left = max(visible_width(name) for name, _ in drawn)
        widths = [
            max(visible_width(text) for text in [*heads[n], *(cells[n] for _, cells in drawn)])
            for n in range(len(columns))
        ]
        out = [
            _line("", [head[n] for head in heads], left, widths)
            for n in (0, 1)
            if any(visible_width(head[n]) for head in heads)
        ]
        rule = ("─" if self.style.unicode else "-") * (left + sum(w + len(_GAP) for w in widths))
        out.append(rule)
        entries = iter(drawn)
        for line in lines:
            if isinstance(line, str):
                out += textwrap.wrap(
                    line,
                    self.style.width,
                    initial_indent="  ",
                    subsequent_indent="  ",
                    break_on_hyphens=False,
                )
                continue
            name, cells = next(entries)
            if line is lines[-1]:
                out.append(rule)
            out.append(_line(name, cells, left, widths))
        return "\n".join([*out, *self._legend(short)])

    def _rows(self, family: Family, columns: list[int]) -> list[tuple[str, list[Entry]] | str]:
        """A line for each operator; in a terminal those that pass everywhere share one."""
        rows: list[tuple[str, list[Entry]] | str] = []
        clean: list[OperatorRow] = []
        for row in family.rows:
            if self.terminal and row.clean:
                clean.append(row)
            else:
                rows.append((f"  {self.style.plain(row.name)}", [row.entries[i] for i in columns]))
        if clean:
            names = ", ".join(f"{self.style.plain(row.name)} {row.cases}" for row in clean)
            rows.append(f"all pass: {names}")
        return rows

    def _entry(self, entry: Entry, short: bool) -> str:
        if not entry.total:
            return ""
        text = self.style.paint(entry.text, "green") if entry.clean else entry.text
        rest = entry.rest()
        parts = [f"{count}{_SHORT[word]}" if short else f"{count} {word}" for count, word in rest]
        painted = [
            self.style.paint(part, "red" if word in _BAD else "yellow")
            for part, (_, word) in zip(parts, rest, strict=True)
        ]
        return (" " if short else ", ").join([text, *painted])

    def _legend(self, short: bool) -> list[str]:
        words = ["passed/cases of an operator, each type a case of its own"]
        if short:
            seen = dict.fromkeys(word for entry in self.table.totals for _, word in entry.rest())
            words += [f"{_SHORT[word]} {word}" for word in seen]
        lines = textwrap.wrap("   ".join(words), self.style.width)
        return ["", *(self.style.paint(line, "dim") for line in lines)]

    def _bold(self, text: str) -> str:
        return self.style.paint(text, "bold")


def _cells(lines: Sequence[tuple[str, list[Entry]] | str]) -> list[tuple[str, list[Entry]]]:
    return [line for line in lines if not isinstance(line, str)]


def _line(name: str, cells: Sequence[str], left: int, widths: Sequence[int]) -> str:
    padded = [name + " " * (left - visible_width(name))]
    padded += [cell + " " * (width - visible_width(cell)) for cell, width in zip(cells, widths, strict=True)]
    return _GAP.join(padded).rstrip()


def _differences(found: findings.Findings, style: Style) -> str:
    lines = []
    for one in _some(found.differences, style):
        lines.append(style.paint(style.plain(said.title(one)), "bold"))
        lines += _labelled("inputs", one.inputs, style)
        for answer in one.answers:
            lines.append(f"  {style.paint(style.plain(answer.column), 'red')}")
            for name, text in said.evidence(answer):
                lines += _labelled(name, text, style, indent=4)
    return _section("Differences", lines, len(found.differences), style)


def _open(found: findings.Findings, style: Style) -> str:
    lines = []
    for one in _some(found.open, style):
        lines.append(style.paint(style.plain(f"{one.case} {one.dtype}"), "bold"))
        lines += _labelled("why", one.why, style)
        lines += _labelled("inputs", one.inputs, style)
        answers = ", ".join(f"{name} {value}" for name, value in one.answers)
        lines += _labelled("at", f"{one.place}: reference {one.reference}; {answers}", style)
    return _section("Differs by definition", lines, len(found.open), style)


def _ended(title: str, ended: Sequence[findings.Ended], style: Style) -> str:
    lines = []
    for one in _some(ended, style):
        cases = f"{one.count} case{'' if one.count == 1 else 's'}"
        lines.append(
            style.plain(
                f"{one.column}, {one.state.value.replace('_', ' ')}, {cases}: {said.ended_reason(one)}"
            )
        )
        lines += _labelled("operators", said.ended_operators(one), style)
    wrapped = [
        part
        for line in lines
        for part in (
            textwrap.wrap(line, style.width, subsequent_indent="    ") if line[:1] != " " else [line]
        )
    ]
    return _section(title, wrapped, len(ended), style)


def _some(listed: Sequence[_T], style: Style) -> Sequence[_T]:
    return listed[:_MOST] if style.colour or style.unicode else listed


def _section(title: str, lines: list[str], count: int, style: Style) -> str:
    if not lines:
        return ""
    head = style.paint(f"{title} ({count})", "bold")
    left_out = count - _MOST if style.colour or style.unicode else 0
    more = [f"  ... and {left_out} more, in the reports"] if left_out > 0 else []
    return "\n".join([head, *lines, *more])


def _labelled(name: str, text: str, style: Style, indent: int = 2) -> list[str]:
    label = f"{' ' * indent}{name:<12}"
    width = max(30, style.width - len(label))
    wrapped = textwrap.wrap(style.plain(text), width, break_on_hyphens=False) or [""]
    return [label + wrapped[0], *(" " * len(label) + line for line in wrapped[1:])]


def _wrapped(sentences: Sequence[str], style: Style) -> str:
    return "\n".join(textwrap.fill(style.plain(sentence), style.width) for sentence in sentences)
