"""Candidates of a run beside the stock operator: right, differentiable, how fast, and what that brings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.operators.gain import Gain, NoShare, Share, gain_of
from matrix.records import CANDIDATE, Record, operator_of
from matrix.report.operators.model_gains import flag_codes, of_models
from matrix.report.operators.pass_table import differs
from matrix.report.style import Style
from matrix_adapters.protocol import State

_NOT_SAID = frozenset({State.UNSUPPORTED, State.UNAVAILABLE, State.NOT_RUN, State.INTERRUPTED})
_MOST = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timed:
    """One case that both were timed on: latency in milliseconds, and stock over candidate."""

    case: str
    precision: str
    stock_ms: float
    candidate_ms: float
    flags: tuple[str, ...] = ()  # codes of what speaks against either time

    @property
    def speedup(self) -> float:
        return self.stock_ms / self.candidate_ms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One candidate in one environment. `wrong`: (case, precision, state, reason) of what did not pass."""

    name: str
    operator: str
    environment: str
    cases: int
    passed: int
    not_said: int  # unsupported, not run: no word on them
    gradients: int  # cases whose gradient was compared and right
    wrong_gradients: int  # and compared and wrong
    wrong: tuple[tuple[str, str, str, str], ...]
    timed: tuple[Timed, ...]
    gains: tuple[Gain, ...] = ()
    without: tuple[NoShare, ...] = ()  # models of the sweep that have none

    @property
    def speedup(self) -> float | None:
        """The geometric mean over the cases that both were timed on; None where there is none."""
        if not self.timed:
            return None
        return math.exp(sum(math.log(one.speedup) for one in self.timed) / len(self.timed))


def find(
    records: Sequence[Record], shares: Sequence[Share] = (), config: Mapping[str, Any] | None = None
) -> tuple[Candidate, ...]:
    """Every candidate of a run; a timed case counts only where both its cells are ok.

    `shares` are given, and go before what follows from the run itself. `config`: its sweep, as it
    was stored.
    """
    stock: dict[tuple[str, str, str, int], Record] = {}
    own: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        work = record.workload
        if work.variant.startswith(CANDIDATE):
            name = work.variant.removeprefix(CANDIDATE)
            own.setdefault((name, operator_of(work), record.environment.name), []).append(record)
        else:  # the first variant of a framework is the stock one
            stock.setdefault(_key(record), record)
    found = []
    for (name, operator, environment), cells in own.items():
        one = Candidate(
            name=name,
            operator=operator,
            environment=environment,
            cases=len(cells),
            passed=sum(record.state is State.OK for record in cells),
            not_said=sum(record.state in _NOT_SAID for record in cells),
            gradients=sum(_gradient(record) is True for record in cells),
            wrong_gradients=sum(_gradient(record) is False for record in cells),
            wrong=tuple(_wrong(r) for r in cells if r.state is not State.OK and r.state not in _NOT_SAID),
            timed=tuple(t for r in cells if (t := _timed(r, stock.get(_key(r)))) is not None),
        )
        found.append(_with_gains(one, records, shares, config or {}, cells))
    return tuple(found)


def _with_gains(
    one: Candidate,
    records: Sequence[Record],
    shares: Sequence[Share],
    config: Mapping[str, Any],
    cells: Sequence[Record],
) -> Candidate:
    given = {share.model for share in shares}
    told = tuple(gain_of(share, one.speedup) for share in shares) if one.speedup is not None else ()
    derived, without = of_models(records, config, cells)
    return dataclasses.replace(
        one,
        gains=told + tuple(gain for gain in derived if gain.share.model not in given),
        without=tuple(none for none in without if none.model not in given),
    )


def as_data(found: Sequence[Candidate]) -> list[dict[str, Any]]:
    """For JSON."""
    return [
        {
            **dataclasses.asdict(one),
            "speedup": one.speedup,
            "timed": [{**dataclasses.asdict(t), "speedup": t.speedup} for t in one.timed],
        }
        for one in found
    ]


def table(found: Sequence[Candidate], style: Style) -> str:
    """One paragraph for each candidate."""
    return "\n\n".join(_paragraph(one, style) for one in found) + "\n"


def _paragraph(one: Candidate, style: Style) -> str:
    lines = [style.paint(f"{one.name}, for {one.operator} in {one.environment}", "bold")]
    rest = f", no word on {one.not_said}" if one.not_said else ""
    lines.append(f"  cases      {one.passed} of {one.cases} pass{rest}")
    lines.append(f"  gradient   {_gradients(one)}")
    if one.speedup is None:
        lines.append("  speed      no case was timed with both")
    else:
        flags = sorted({code for timed in one.timed for code in timed.flags})
        against = f"; flags speak against some: {', '.join(flags)}" if flags else ""
        lines.append(f"  speed      x{one.speedup:.3g}, geometric mean over {len(one.timed)} timed{against}")
    for gain in one.gains:
        word = f"derived: {gain.share.source}" if gain.share.derived else gain.share.source
        word += f"; flags speak against some: {', '.join(gain.share.flags)}" if gain.share.flags else ""
        most = f"x{gain.most:.4g}" if gain.most is not None else "no limit"
        share = f"{gain.share.share:.1%} of its time ({word}), which becomes x{gain.speedup:.3g} as fast"
        lines.append(f"  {gain.share.model}: {share}: x{gain.gain:.4g} end to end by Amdahl, {most} at most")
    lines += [f"  {none.model}: its share is unavailable: {none.why}" for none in one.without]
    for case, precision, state, reason in one.wrong[:_MOST]:
        lines.append(f"  {style.plain(f'{state}: {case} {precision}: {reason}')}")
    if len(one.wrong) > _MOST:
        lines.append(f"  ... and {len(one.wrong) - _MOST} more: see --json")
    return "\n".join(lines)


def _key(record: Record) -> tuple[str, str, str, int]:
    work = record.workload
    return (record.environment.name, work.subject, work.precision, work.threads)


def _gradients(one: Candidate) -> str:
    told = [
        f"{word} in {count} case{'' if count == 1 else 's'}"
        for word, count in (("right", one.gradients), ("wrong", one.wrong_gradients))
        if count
    ]
    return ", ".join(told) or "not compared"


def _gradient(record: Record) -> bool | None:
    """Whether it is right; None where it was not compared."""
    told: Mapping[str, Any] = record.effective
    gradient = told.get("gradient")
    return bool(gradient.get("passed")) if isinstance(gradient, Mapping) else None


def _wrong(record: Record) -> tuple[str, str, str, str]:
    reason = record.reason.text if record.reason else ""
    return (record.workload.subject, record.workload.precision, record.state.value, reason)


def _timed(own: Record, stock: Record | None) -> Timed | None:
    if stock is None or own.state is not State.OK or stock.state is not State.OK or differs(own):
        return None
    mine, theirs = own.metrics.get("latency_ms"), stock.metrics.get("latency_ms")
    if mine is None or theirs is None or mine.value <= 0:
        return None
    return Timed(
        case=own.workload.subject,
        precision=own.workload.precision,
        stock_ms=theirs.value,
        candidate_ms=mine.value,
        flags=flag_codes([own, stock]),
    )
