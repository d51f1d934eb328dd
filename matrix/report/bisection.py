"""A bisection in words, and as JSON: the first bad version, the evidence, and who is guilty."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from tabulate import tabulate

from matrix.bisect.guilt import Guilty, Judgement
from matrix.bisect.search import Conclusion
from matrix.bisect.state import State
from matrix.environments.lock_difference import LockChange
from matrix.judge.bisection import Answer, Found, Nothing, Range

WIDTH = 110

_GUILTY = {
    Guilty.FRAMEWORK: "the framework itself: its new version is worse with the old packages too",
    Guilty.BOTH: "both: the framework alone and the other packages alone are worse",
    Guilty.TOGETHER: "only together: neither the new framework nor the new packages are worse by themselves",
    Guilty.UNKNOWN: "not to be told: a crossed environment could not be tested",
}


def text(state: State, conclusion: Conclusion) -> str:
    """For people, plain text."""
    return "\n".join(_wrapped([*_table(state), "", *_end(state, conclusion)])) + "\n"


def as_json(state: State, conclusion: Conclusion | None) -> str:
    """For scripts: what was found, every test, and what else changed. No conclusion: it was stopped."""
    end = conclusion.end if conclusion else None
    judgement = conclusion.judgement if conclusion else None
    found: dict[str, Any] = {
        "id": state.id,
        "framework": state.framework,
        "versions": [version.label for version in state.versions],
        "outcome": _outcome(end),
        "first_bad": end.first_bad if isinstance(end, Found) else None,
        "last_good": end.last_good if isinstance(end, (Found, Range)) else None,
        "suspects": list(end.suspects) if isinstance(end, Range) else [],
        "target": state.target.model_dump() if state.target else None,
        "tested": [
            {"version": label, **tested.model_dump(mode="json", exclude={"lock", "good_lock", "target"})}
            for label, tested in state.tested.items()
        ],
        "lock_changes": [_change(c) for c in conclusion.changes] if conclusion else [],
        "guilty": judgement.guilty.value if judgement else None,
        "guilty_packages": [_change(c) for c in judgement.packages] if judgement else [],
        "as_of": state.as_of,
    }
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _outcome(end: Found | Range | Nothing | None) -> str:
    if end is None:
        return "stopped"
    if isinstance(end, Nothing):
        return "nothing to find" if end.bad_end is Answer.GOOD else "undecided"
    return "found" if isinstance(end, Found) else "range"


def _table(state: State) -> Iterator[str]:
    first = state.versions[0].label
    rows = [(first, "good", "what all others are compared with", "")]
    listed = {version.label for version in state.versions}
    order = [version.label for version in state.versions if version.label in state.tested]
    for label in [*order, *(label for label in state.tested if label not in listed)]:
        tested = state.tested[label]
        rows.append((label, tested.answer.value, tested.verdict, tested.run))
    yield f"{state.framework}, {len(state.versions)} versions, {len(state.tested)} tests ({state.id})"
    widths = [24, None, 48, 22]
    yield tabulate(rows, ("version", "answer", "verdict", "run"), maxcolwidths=widths, disable_numparse=True)


def _end(state: State, conclusion: Conclusion) -> Iterator[str]:
    end = conclusion.end
    good, bad = state.versions[0].label, state.versions[-1].label
    if isinstance(end, Nothing):
        verdict = state.tested[bad].verdict
        if end.bad_end is Answer.GOOD:
            yield f"Nothing to find: {bad} is no worse than {good}: {verdict}"
        else:
            yield f"Nothing can be searched: {bad} against {good} did not come to a verdict: {verdict}"
        return
    if isinstance(end, Range):
        among = ", ".join(end.suspects)
        yield f"The first bad version is one of {among}; the last good one is {end.last_good}."
        yield f"The others of them could not be tested. Evidence against {end.suspects[-1]}:"
    else:
        yield f"First bad version: {end.first_bad}. Last good one: {end.last_good}. Evidence:"
    tested = state.tested[end.suspects[-1] if isinstance(end, Range) else end.first_bad]
    yield f"  {tested.verdict} (run {tested.run})"
    ends = state.tested[bad]
    if ends.also:
        yield f"At {bad} {len(ends.also)} more rows are worse, which were not followed:"
        yield from (f"  {line}" for line in ends.also[:5])
    yield from _packages(conclusion)


def _packages(conclusion: Conclusion) -> Iterator[str]:
    judgement = conclusion.judgement
    if conclusion.changes:
        yield f"What changed between the two locks: {_listed(conclusion.changes)}."
    if judgement is None:
        return
    yield f"Guilty: {_guilty(judgement)}."


def _guilty(judgement: Judgement) -> str:
    if judgement.guilty is Guilty.DEPENDENCY:
        one = "a dependency, not the framework" if len(judgement.packages) == 1 else "dependencies"
        return f"{one}: {_listed(judgement.packages)}: the old framework is worse with it too"
    if judgement.guilty is Guilty.FRAMEWORK and not judgement.others:
        return "the framework itself: nothing else changed"
    return _GUILTY[judgement.guilty]


def _listed(changes: Iterable[LockChange]) -> str:
    return ", ".join(map(str, changes))


def _change(change: LockChange) -> dict[str, str]:
    return {"name": change.name, "base": change.base, "candidate": change.candidate}


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if "\n" in line or not line.strip():
            yield line
            continue
        indent = line[: len(line) - len(line.lstrip())]
        yield from textwrap.wrap(line, WIDTH, subsequent_indent=indent + "  ", break_long_words=False)
