"""What a reader wants said in words: how cells ended, why, what to distrust, and who was fastest.

Every view prints these from here, so that no two of them tell different stories.
"""

from __future__ import annotations

import dataclasses
import functools
import string
from collections import Counter
from collections.abc import Iterable, Sequence

from matrix.records import Record
from matrix.report.matrix_table import Mark, MatrixTable
from matrix.report.units import ratio
from matrix_adapters.protocol import State

#: the order in which states are listed: good, wrong, broken, not possible, not done
STATE_ORDER = (
    State.OK,
    State.INCORRECT,
    State.FAILED,
    State.OOM,
    State.TIMEOUT,
    State.BUILD_FAILED,
    State.UNSUPPORTED,
    State.UNAVAILABLE,
    State.INTERRUPTED,
    State.NOT_RUN,
)

#: how each state is explained to someone who sees it for the first time
STATE_HELP = {
    State.OK: "measured, and its numerics agree with the reference",
    State.INCORRECT: "ran, but its numbers are outside tolerance: its speed is struck through, never ranked",
    State.FAILED: "the worker failed",
    State.OOM: "ran out of memory",
    State.TIMEOUT: "did not finish in time",
    State.BUILD_FAILED: "the environment could not be built",
    State.UNSUPPORTED: "cannot exist: this framework has no such hardware, operator or precision",
    State.UNAVAILABLE: "could exist, but not on this machine",
    State.INTERRUPTED: "stopped while it ran; `matrix run --resume` continues",
    State.NOT_RUN: "planned, but the run ended before its turn",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """One footnote: its sign, what it says, and which cells carry it."""

    sign: str
    head: str  # state or flag code
    text: str
    cells: tuple[str, ...]  # record ids

    @property
    def count(self) -> int:
        return len(self.cells)


@dataclasses.dataclass(frozen=True)
class Notes:
    """All footnotes of a set of records, and which signs each record carries."""

    reasons: tuple[Note, ...]  # numbered: why a cell is not ok
    flags: tuple[Note, ...]  # lettered: what to distrust about an ok one
    remarks: tuple[Note, ...]  # starred: why an ok cell is not ranked

    def signs(self, record_id: str) -> tuple[str, ...]:
        return self._by_cell.get(record_id, ())

    @functools.cached_property
    def _by_cell(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for note in (*self.reasons, *self.flags, *self.remarks):
            for cell in note.cells:
                found[cell] = (*found.get(cell, ()), note.sign)
        return found


def counts(records: Iterable[Record]) -> dict[State, int]:
    """How many cells ended in each state, in the listed order; states without any are left out."""
    found = Counter(record.state for record in records)
    return {state: found[state] for state in STATE_ORDER if found[state]}


def counts_text(records: Sequence[Record]) -> str:
    """ "16 cells planned, 16 reported: 12 ok, 4 unavailable" """
    parts = ", ".join(f"{n} {state.value}" for state, n in counts(records).items())
    cells = f"{len(records)} cell{'' if len(records) == 1 else 's'}"
    return f"{cells}: {parts}" if parts else "no cells"


def notes(records: Sequence[Record], table: MatrixTable) -> Notes:
    """Footnotes of the cells, one per distinct reason or flag code, most cells first."""
    reasons: dict[tuple[str, str], list[str]] = {}
    flags: dict[str, dict[str, list[str]]] = {}
    for record in records:
        if record.state is not State.OK:
            text = record.reason.text if record.reason else "no reason was stored"
            if record.xfail:
                text = f"{text} (expected: {record.xfail})"
            if record.required:
                text = f"{text} (this cell is required)"
            reasons.setdefault((record.state.value, text), []).append(record.id)
        for flag in record.flags:
            flags.setdefault(flag.code, {}).setdefault(flag.text, []).append(record.id)
    remarks: dict[str, list[str]] = {}
    for cell in table.cells():
        if cell.state is State.OK and cell.why.startswith("not comparable"):
            remarks.setdefault(cell.why, []).append(cell.record.id)
    ordered = sorted(reasons.items(), key=lambda item: (_rank(item[0][0]), -len(item[1])))
    return Notes(
        tuple(Note(str(i), key[0], key[1], tuple(ids)) for i, (key, ids) in enumerate(ordered, 1)),
        tuple(_flag_note(i, code, texts) for i, (code, texts) in enumerate(flags.items())),
        tuple(
            Note(f"n{i}", "not ranked", text, tuple(ids)) for i, (text, ids) in enumerate(remarks.items(), 1)
        ),
    )


def headline(table: MatrixTable) -> list[str]:
    """One or two sentences about the metric, with the count they rest on; empty when none is earned."""
    if not table.metric.ranked or not table.rows:
        return []
    name = table.metric.title[0].lower() + table.metric.title[1:]
    leads: Counter[int] = Counter()
    contested = close = 0
    for row in table.rows:
        marks = [i for i, c in enumerate(row.cells) if c and c.mark is Mark.BEST]
        contested += bool(marks)
        close += bool(marks) and any(c and c.mark is Mark.TIED for c in row.cells)
        leads.update(marks)
    if not contested:
        return [f"No row has two cells whose {name} may be compared."]
    word = "lowest" if table.metric.better == "lower" else "highest"
    rows = "the one compared row" if contested == 1 else f"{contested} compared rows"
    wins = [f"{table.columns[i].label} in {won}" for i, won in leads.most_common()]
    if len(wins) == 1:
        every = "" if contested == 1 else "all "
        said = [f"{table.columns[next(iter(leads))].label} has the {word} {name} in {every}{rows}"]
    else:
        said = [f"The {word} {name} of {rows}: {', '.join(wins)}"]
    if close:
        where = "there" if contested == 1 else f"in {close} of the {contested}"
        said[0] += f"; {where} the ranges over launches overlap, so the order may be chance"
    said[0] += "."
    others = [
        f"{table.columns[i].label} {ratio(s.geomean)}"
        for i, s in enumerate(table.summaries)
        if s.geomean is not None and i != table.baseline
    ]
    if table.baseline is not None and others:
        n = table.compared_rows
        said.append(
            f"Geometric mean of the ratio to {table.columns[table.baseline].label}, over the "
            f"{'one row' if n == 1 else f'{n} rows'} that all of them have: {', '.join(others)}."
        )
    return said


def _rank(state: str) -> int:
    return STATE_ORDER.index(State(state))


def _flag_note(index: int, code: str, texts: dict[str, list[str]]) -> Note:
    letters = string.ascii_lowercase
    sign = letters[index % 26] * (index // 26 + 1)
    first = next(iter(texts))
    more = len(texts) - 1
    text = f"{first} (and {more} more like it)" if more else first
    if "fallback" in code:
        text += "; not ranked"
    return Note(sign, code, text, tuple(i for ids in texts.values() for i in ids))
