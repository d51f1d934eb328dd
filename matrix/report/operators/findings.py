"""What did not pass, with its evidence: wrong answers, open ones side by side, what is missing or broke."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from matrix.operators.dtypes import dtype_of
from matrix.records import Parity, Record
from matrix.report.operators import explained
from matrix.report.operators.case_book import CaseBook
from matrix.report.operators.explained import Explained
from matrix.report.operators.pass_table import PassTable, differs
from matrix.report.placing import RowKey
from matrix.report.summary import STATE_ORDER
from matrix.report.units import number
from matrix_adapters.protocol import State

#: ends that are told by their reason, once for all cases that share it
_BY_REASON = tuple(s for s in STATE_ORDER if s not in (State.OK, State.INCORRECT))


@dataclasses.dataclass(frozen=True, slots=True)
class WrongAnswer:
    """One environment's wrong answer to a case."""

    column: str  # the environment's label
    record: str  # id of the cell
    failure: str  # what failed first, in words
    errors: str  # "312 ulp, scaled 1.2e-03"; "" where values could not be compared
    rule: str
    passes_from: str  # the least tolerance that would pass; "" where none would
    worst: str  # "Y[0, 3]: got 0.25, exact 0.5"
    note: str = ""  # required, or expected to fail
    why: str = ""  # whose fault it is, where the catalog knows


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One case, and all who answered it wrongly."""

    case: str  # "Gelu/tanh"
    dtype: str
    inputs: str
    answers: tuple[WrongAnswer, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class OpenCase:
    """A case that several answers are right for: everyone's, at the first place where they differ."""

    case: str
    dtype: str
    inputs: str
    why: str
    place: str  # "Y[0, 3]"
    reference: str
    answers: tuple[tuple[str, str], ...]  # environment, its value or its state


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """Cases that one environment did not come through, all for one reason."""

    column: str
    state: State
    reason: str
    operators: tuple[tuple[str, int], ...]  # operator, how many of its cases
    cases: tuple[str, ...]  # "Gelu/tanh float16"
    why: str = ""  # whose fault it is, where the catalog knows
    of: int = 0  # operators that this environment has cases of

    @property
    def count(self) -> int:
        return len(self.cases)


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """Everything below the table."""

    differences: tuple[Difference, ...]
    open: tuple[OpenCase, ...]
    agreed: int  # open cases whose answers are all the same
    unsupported: tuple[Ended, ...]
    ended: tuple[Ended, ...]  # failed, out of memory, not run, ...
    explained: tuple[Explained, ...] = ()  # how many failures have a known reason, by environment
    unread: str = ""  # why none has: a mistake in the catalog's files


def find(table: PassTable, book: CaseBook) -> Findings:
    """Look through all cells of `table`. Each that did not pass is in exactly one list."""
    several = len({key.threads for key in table.placed}) > 1
    wrong: list[Difference] = []
    side_by_side: list[OpenCase] = []
    agreed = 0
    for key, cells in table.placed.items():
        first = next(iter(cells.values()))
        inputs = book.inputs_of(first.workload)
        name = f"{key.subject}, {key.parts()['threads']}" if several else key.subject
        answers = tuple(
            _wrong(table.columns[i].label, record, explained.why(record, book.known))
            for i, record in cells.items()
            if record.state is State.INCORRECT
        )
        if answers:
            wrong.append(Difference(name, dtype_of(key.precision), inputs, answers))
        if any(differs(record) for record in cells.values()):
            whole = _Cells(name, dtype_of(key.precision), inputs, book.open(first.workload), cells)
            side_by_side.append(_open(table, whole))
        elif book.open(first.workload) and any(r.state is State.OK for r in cells.values()):
            agreed += 1
    ended = list(_ended(table, book))
    return Findings(
        tuple(wrong),
        tuple(side_by_side),
        agreed,
        tuple(e for e in ended if e.state is State.UNSUPPORTED),
        tuple(e for e in ended if e.state is not State.UNSUPPORTED),
        explained.find(table, book.known),
        book.unread,
    )


def _wrong(label: str, record: Record, why: str) -> WrongAnswer:
    parity = record.parity
    failure = record.reason.text if record.reason else (parity.failure if parity else "no reason was stored")
    note = f"expected: {record.xfail}" if record.xfail else "this cell is required" if record.required else ""
    if parity is None:
        return WrongAnswer(label, record.id, failure, "", "", "", "", note, why)
    return WrongAnswer(
        column=label,
        record=record.id,
        failure=failure,
        errors=_errors(parity),
        rule=parity.rule,
        passes_from=_passes_from(parity),
        worst=parity.worst,
        note=note,
        why=why,
    )


def _errors(parity: Parity) -> str:
    parts = [] if parity.max_ulps is None else [f"{number(parity.max_ulps)} ulp"]
    if parity.max_scaled_error is not None:
        parts.append(f"{number(parity.max_scaled_error)} of the largest exact value")
    return ", ".join(parts)


def _passes_from(parity: Parity) -> str:
    if parity.least_passing is None:
        return ""
    unit = " ulp" if parity.unit == "ulp" else " absolute" if parity.unit == "absolute" else ""
    limit = f", the limit there is {number(parity.limit)}" if parity.limit is not None else ""
    return f"{number(parity.least_passing)}{unit}{limit}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Cells:
    """One case in all environments, by column."""

    name: str
    dtype: str
    inputs: str
    why: str
    cells: Mapping[int, Record]


def _open(table: PassTable, case: _Cells) -> OpenCase:
    given = {i: _shown(record) for i, record in case.cells.items() if record.state is State.OK}
    output, at = _first_difference(list(given.values()))
    reference = next((r for shown in given.values() if (r := _value(shown, output, at, "reference"))), "-")
    answers = []
    for i, record in sorted(case.cells.items()):
        if record.state is State.OK:
            value = _value(given[i], output, at, "values") or _elsewhere(record)
        else:
            value = record.state.value.replace("_", " ")
        answers.append((table.columns[i].label, value))
    place = _place(output, at, given.values()) if output else "beyond the stored values"
    why = case.why or _why(case.cells)
    return OpenCase(case.name, case.dtype, case.inputs, why, place, reference, tuple(answers))


def _place(output: str, at: int, answers: Iterable[Shown]) -> str:
    """The flat index as one index an axis, by the shape that an answer has."""
    shape = next((list(a[output].get("shape", ())) for a in answers if output in a), [])
    index: list[str] = []
    for size in reversed(shape):
        at, rest = divmod(at, max(int(size), 1))
        index.insert(0, str(rest))
    return f"{output}[{', '.join(index)}]" if index else output


def _why(cells: Mapping[int, Record]) -> str:
    """From the flag, where the catalog does not have the case any more."""
    return next(
        (f.text for r in cells.values() for f in r.flags if differs(r) and "definition" in f.code), ""
    )


Shown = Mapping[str, Mapping[str, Any]]  # output -> {"shape", "dtype", "values", "reference"}


def _shown(record: Record) -> Shown:
    """The first values of each output, as the check stored them."""
    checks = [launch for launch in record.launches if launch.purpose == "check" and launch.outputs]
    return checks[-1].outputs if checks else {}


def _first_difference(answers: Sequence[Shown]) -> tuple[str, int]:
    """Output and flat index at which any two of the answers and the reference differ; "" without one."""
    names = dict.fromkeys(name for shown in answers for name in shown)
    for name in names:
        columns = [shown[name].get("values", ()) for shown in answers if name in shown]
        columns += [shown[name].get("reference", ()) for shown in answers if name in shown][:1]
        lists = [list(column) for column in columns]
        for at, values in enumerate(itertools.zip_longest(*lists)):
            if any(not _same(values[0], other) for other in values[1:]):
                return name, at
    return "", 0


def _same(one: Any, other: Any) -> bool:
    """Equal as numbers of few digits: float32's 0.1 and the exact 0.1 are the same answer."""
    if one is None or other is None:
        return one is other
    if one == other:
        return True
    try:
        a, b = float(one), float(other)
    except (TypeError, ValueError):
        return False
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= 1e-2 * max(abs(a), abs(b))


def _value(shown: Shown, output: str, at: int, what: str) -> str:
    values = shown.get(output, {}).get(what, ())
    return _brief(values[at]) if at < len(values) else ""


def _brief(value: Any) -> str:
    try:
        return f"{float(value):.6g}"
    except (TypeError, ValueError):
        return str(value)


def _elsewhere(record: Record) -> str:
    parity = record.parity
    return (parity.worst or "ok") if parity and not parity.passed else "as the reference"


def _ended(table: PassTable, book: CaseBook) -> Iterator[Ended]:
    """By environment, state, reason and whose fault, in the order of columns and states; most cases first."""
    groups: dict[tuple[int, State, str, str], list[RowKey]] = {}
    for key, cells in table.placed.items():
        for i, record in cells.items():
            if record.state in _BY_REASON:
                text = record.reason.text if record.reason else "no reason was stored"
                groups.setdefault((i, record.state, text, explained.why(record, book.known)), []).append(key)
    known: dict[int, set[str]] = {}  # operators of each column
    for key, cells in table.placed.items():
        for i in cells:
            known.setdefault(i, set()).add(key.subject.partition("/")[0])
    order = sorted(groups, key=lambda g: (g[0], _BY_REASON.index(g[1]), -len(groups[g]), g[2:]))
    for group in order:
        i, state, text, why = group
        keys = groups[group]
        counted: dict[str, int] = {}
        for key in keys:
            operator = key.subject.partition("/")[0]
            counted[operator] = counted.get(operator, 0) + 1
        cases = tuple(f"{key.subject} {dtype_of(key.precision)}" for key in keys)
        yield Ended(table.columns[i].label, state, text, tuple(counted.items()), cases, why, len(known[i]))
