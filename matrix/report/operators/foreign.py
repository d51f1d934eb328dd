"""Others' tests: how many were run and passed in each environment, why the rest did not, what changed.

Every record counts once. A test is `run` when the framework gave an answer or failed to; what it
says it does not have, and what no folder can hold, is not.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record
from matrix.report.operators.pass_table import differs
from matrix.report.style import Style
from matrix_adapters.protocol import State

#: how a test can fail: everything else that is not ok says nothing about the framework's answers
FAILING = frozenset({State.INCORRECT, State.FAILED, State.OOM, State.TIMEOUT})
_RUN = FAILING | {State.OK}
_WRONG = {
    "tolerance": "the error is beyond the test's own limits",
    "values": "values differ where they must be equal",
    "non_finite": "NaN or infinity where there is none, or the reverse",
    "shape": "an output has another shape",
    "dtype": "an output has another type",
    "outputs": "outputs are missing",
    "wrapped": "integers wrapped",
}
#: reasons of one environment that a terminal shows, and tests of one list
_MOST_REASONS, _MOST_TESTS, _EXAMPLES = 12, 25, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Why:
    """One reason of several tests: `text` without what differs between them, `example` in full."""

    state: State
    code: str
    text: str
    example: str
    tests: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passes:
    """One environment."""

    environment: str
    total: int
    passed: int
    open: int  # several answers are right, and it has its own
    states: Mapping[State, int]
    why: tuple[Why, ...]  # the most frequent first

    @property
    def run(self) -> int:
        return sum(count for state, count in self.states.items() if state in _RUN)

    @property
    def failing(self) -> int:
        return sum(count for state, count in self.states.items() if state in FAILING)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One test that ended in another way."""

    test: str
    before: str
    after: str
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
    """From one environment to another: a test is in one list at most."""

    base: str
    candidate: str
    newly_failing: tuple[Change, ...]
    newly_passing: tuple[Change, ...]
    no_longer_run: tuple[Change, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A whole run of others' tests. `changes`: of each environment against the first."""

    source: str
    passes: tuple[Passes, ...]
    changes: tuple[Changes, ...]


def summary(records: Sequence[Record], source: str) -> Summary:
    """The tables of a run; environments in the order in which they were planned."""
    sides: dict[str, dict[tuple[str, str], Record]] = {}
    for record in records:
        key = (record.workload.subject, record.workload.precision)
        sides.setdefault(record.environment.name, {})[key] = record
    names = list(sides)
    return Summary(
        source=source,
        passes=tuple(_passes(name, list(side.values())) for name, side in sides.items()),
        changes=tuple(_changes(names[0], sides[names[0]], name, sides[name]) for name in names[1:]),
    )


def as_data(found: Summary) -> dict[str, Any]:
    """For JSON: every reason and every change with all its tests."""
    return {
        "source": found.source,
        "environments": [
            {
                "environment": one.environment,
                "total": one.total,
                "run": one.run,
                "passed": one.passed,
                "open": one.open,
                "states": {state.value: count for state, count in one.states.items()},
                "reasons": [
                    {**dataclasses.asdict(why), "state": why.state.value, "count": len(why.tests)}
                    for why in one.why
                ],
            }
            for one in found.passes
        ],
        "changes": [dataclasses.asdict(one) for one in found.changes],
    }


def table(found: Summary, style: Style) -> str:
    """The same to be read: a table, the reasons of each environment, what changed."""
    from tabulate import tabulate

    rows = [_row(one) for one in found.passes]
    tests = max((one.total for one in found.passes), default=0)
    head = style.paint(f"{found.source}: {tests:,} tests", "bold")
    parts = [head, tabulate(rows, headers=_HEADS, intfmt=",")]
    parts += [_reasons(one, style) for one in found.passes if one.why]
    parts += [_changed(one, style) for one in found.changes]
    return "\n\n".join(parts) + "\n"


_HEADS = ("environment", "run", "passed", "open", "incorrect", "failed", "unsupported", "other")


def _row(one: Passes) -> tuple[Any, ...]:
    count = Counter(one.states)
    failed = one.failing - count[State.INCORRECT]
    other = one.total - one.run - count[State.UNSUPPORTED]
    incorrect, unsupported = count[State.INCORRECT], count[State.UNSUPPORTED]
    return (one.environment, one.run, one.passed, one.open, incorrect, failed, unsupported, other)


def _reasons(one: Passes, style: Style) -> str:
    lines = [style.paint(f"{one.environment}: why tests did not pass", "bold")]
    for why in one.why[:_MOST_REASONS]:
        examples = ", ".join(why.tests[:_EXAMPLES]) + (", ..." if len(why.tests) > _EXAMPLES else "")
        lines.append(f"{len(why.tests):>6}  {why.state.value}: {style.plain(why.text)}")
        lines.append(f"        {style.plain(examples)}")
    if len(one.why) > _MOST_REASONS:
        rest = one.why[_MOST_REASONS:]
        lines.append(f"{sum(len(why.tests) for why in rest):>6}  for {len(rest)} more reasons: see --json")
    return "\n".join(lines)


def _changed(one: Changes, style: Style) -> str:
    lines = [style.paint(f"from {one.base} to {one.candidate}", "bold")]
    for word, listed in (
        ("newly failing", one.newly_failing),
        ("newly passing", one.newly_passing),
        ("no longer run", one.no_longer_run),
    ):
        ways = Counter(f"{change.before} -> {change.after}" for change in listed)
        told = ", ".join(f"{count} {way}" for way, count in ways.most_common())
        lines.append(f"  {word}: {len(listed)}" + (f" ({told})" if told else ""))
        for change in listed[:_MOST_TESTS]:
            reason = f": {change.reason}" if change.reason else ""
            text = style.plain(f"{change.test}: {change.before} -> {change.after}{reason}")
            lines.append(f"    {text[: max(60, style.width - 4)]}")
        if len(listed) > _MOST_TESTS:
            lines.append(f"    ... and {len(listed) - _MOST_TESTS} more: see --json")
    return "\n".join(lines)


def _passes(environment: str, records: Sequence[Record]) -> Passes:
    groups: dict[tuple[State, str, str], list[Record]] = {}
    for record in records:
        if record.state is not State.OK:
            groups.setdefault(_group(record), []).append(record)
    why = [
        Why(
            state=state,
            code=code,
            text=text,
            example=members[0].reason.text if members[0].reason else "",
            tests=tuple(member.workload.subject for member in members),
        )
        for (state, code, text), members in groups.items()
    ]
    order = {state: (state not in FAILING, i) for i, state in enumerate(State)}
    counted = Counter(record.state for record in records)
    own = sum(differs(record) for record in records)
    return Passes(
        environment=environment,
        total=len(records),
        passed=counted[State.OK] - own,
        open=own,
        states={state: counted[state] for state in State if counted[state]},
        why=tuple(sorted(why, key=lambda one: (order[one.state], -len(one.tests)))),
    )


def _group(record: Record) -> tuple[State, str, str]:
    code = record.reason.code if record.reason else ""
    text = record.reason.text if record.reason else "no reason is known"
    if record.state is State.INCORRECT and code in _WRONG:
        return record.state, code, _WRONG[code]
    return record.state, code, general(text)


def general(text: str) -> str:
    """A sentence without what differs from test to test: quoted names, numbers, places in sources."""
    text = re.sub(r" \((?:ONNX Runtime: )?\[ONNXRuntimeError\].*", "", text)
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : ", "", text)
    text = re.sub(r"Load model from \S+ failed: ?", "", text)
    text = re.sub(r"In Node, \(.*, Error ", "", text)  # the node's signature
    text = re.sub(r"/\S+\.(?:cc|h):\d+ [^)]*\)\S* (?=[A-Z])", "", text)  # a function of its sources
    text = re.sub(r"""'[^']*'|"[^"]*"|\bName:\S*""", "...", text)
    text = re.sub(r"/[\w./+-]+/(\w+\.\w+):\d+", r"\1", text)
    text = re.sub(r"NumPy has no \w+, the type of .*", "an element type that NumPy has not", text)
    text = re.sub(r": \S+ is an? (?=sequence|optional|map|sparse)", ", no ", text)
    text = re.sub(r"(?<![\w.])\d+(?![\w.])", "N", text)
    return " ".join(text.split())[:160]


def _changes(
    base: str,
    before: Mapping[tuple[str, str], Record],
    candidate: str,
    after: Mapping[tuple[str, str], Record],
) -> Changes:
    lists: dict[str, list[Change]] = {"failing": [], "passing": [], "gone": []}
    for key, now in after.items():
        then = before.get(key)
        if then is None or _standing(then) == _standing(now):
            continue
        reason = now.reason.text if now.reason else ""
        change = Change(test=key[0], before=then.state.value, after=now.state.value, reason=reason)
        lists[_standing(now)].append(change)
    return Changes(
        base=base,
        candidate=candidate,
        newly_failing=tuple(lists["failing"]),
        newly_passing=tuple(lists["passing"]),
        no_longer_run=tuple(lists["gone"]),
    )


def _standing(record: Record) -> str:
    if record.state is State.OK:
        return "passing"
    return "failing" if record.state in FAILING else "gone"
