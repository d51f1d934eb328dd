"""Rows that are judged each by itself: without chance, without pairs, or without enough of either."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from matrix.judge import paired, reasons, series
from matrix.judge.numbers import fraction, typical
from matrix.judge.rows import Row, Sides, Verdict, Word
from matrix.judge.series import Refused, Series


def refused(read: Refused) -> Verdict:
    """A row that cannot be computed with; its typical values are shown where they exist."""
    row = read.row
    base, candidate = _values(row.clocks.get(series.pick(row, read.clock)))
    return Verdict(
        workload=row.workload,
        metric=row.metric,
        unit=row.unit,
        verdict=read.word,
        reason=read.reason,
        base=typical(base),
        candidate=typical(candidate),
        margin=row.margin,
        n=read.blocks,
        clock=read.clock,
        layout=row.layout,
    )


def few(one: Series, least: int) -> Verdict:
    """Too few blocks to decide; the effect is shown, and with two blocks an interval that tells why."""
    row, pairs = one.row, one.screen
    n = len(pairs)
    if n == 0:
        return refused(Refused(row, Word.INCONCLUSIVE, reasons.too_few(0, least), one.clock))
    delta, variance = paired.moments(pairs.ratios)
    low = high = None
    if n > 1:
        none = np.zeros(1)
        tested = paired.test(
            n=np.array([float(n)]),
            delta=np.array([delta]),
            variance=np.array([variance]),
            margin=np.array([one.margin]),
            prior_df=none,
            prior_variance=none,
        )
        low, high = float(tested.low[0]), float(tested.high[0])
    missing = least - n
    return Verdict(
        workload=row.workload,
        metric=row.metric,
        unit=row.unit,
        verdict=Word.INCONCLUSIVE,
        reason=reasons.too_few(n, least),
        base=typical(pairs.base),
        candidate=typical(pairs.candidate),
        delta=delta,
        delta_low=low,
        delta_high=high,
        effect=fraction(delta),
        low=None if low is None else fraction(low),
        high=None if high is None else fraction(high),
        margin=row.margin,
        n=n,
        clock=one.clock,
        layout=row.layout,
        needed_blocks=missing,
        needed_s=None if row.block_s is None else missing * row.block_s,
    )


def fixed(row: Row) -> Verdict:
    """A value without chance: any change beyond the margin is one, and there is no interval."""
    clock = series.pick(row)
    sides = row.clocks.get(clock)
    base, candidate = _values(sides)
    problem = _bad_side(sides)
    if problem:
        return refused(Refused(row, Word.NOT_COMPARABLE, problem, clock))
    delta = _mean(candidate) - _mean(base)
    delta = -delta if row.better == "higher" else delta
    margin = math.log1p(row.margin)
    beyond = abs(delta) > margin * (1 + 1e-9)
    word = (Word.REGRESSED if delta > 0 else Word.IMPROVED) if beyond else Word.NO_WORSE
    reason = reasons.within(delta, margin) if delta and not beyond else ""
    return _unpaired(row, word, reason, delta=delta, base=base, candidate=candidate, clock=clock)


def separate(row: Row, clock: str) -> Verdict:
    """Sides measured at different times: effect and interval, but what lay between may explain them."""
    sides = row.clocks.get(clock)
    base, candidate = _values(sides)
    problem = _bad_side(sides)
    if problem:
        return refused(Refused(row, Word.NOT_COMPARABLE, problem, clock))
    sign = -1.0 if row.better == "higher" else 1.0
    delta = sign * (_mean(candidate) - _mean(base))
    verdict = _unpaired(
        row, Word.INCONCLUSIVE, reasons.SEPARATE, delta=delta, base=base, candidate=candidate, clock=clock
    )
    if verdict.n < 2:
        return verdict
    tested = paired.welch([sign * x for x in base], [sign * x for x in candidate], math.log1p(row.margin))
    low, high = float(tested.low[0]), float(tested.high[0])
    return dataclasses.replace(
        verdict,
        delta_low=low,
        delta_high=high,
        low=fraction(low),
        high=fraction(high),
        mde=fraction(float(tested.mde[0])),
        p_worse=float(tested.p_worse[0]),
        p_no_worse=float(tested.p_no_worse[0]),
    )


def _values(sides: Sides | None) -> tuple[list[float], list[float]]:
    """Logarithms of both sides' values, of every block that either has."""
    return (series.logarithms(sides.base), series.logarithms(sides.candidate)) if sides else ([], [])


def _bad_side(sides: Sides | None) -> str:
    if sides is None:
        return "no values on either side"
    for name, values in (("base", sides.base), ("candidate", sides.candidate)):
        problem = series.bad_value(values)
        if problem:
            return f"{name}: {problem}"
    return ""


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _unpaired(
    row: Row,
    word: Word,
    reason: str,
    *,
    delta: float,
    base: Sequence[float],
    candidate: Sequence[float],
    clock: str,
) -> Verdict:
    """What is known without pairs: logarithms of both sides' values, and how far apart they are."""
    return Verdict(
        workload=row.workload,
        metric=row.metric,
        unit=row.unit,
        verdict=word,
        reason=reason,
        base=typical(base),
        candidate=typical(candidate),
        delta=delta,
        effect=fraction(delta),
        margin=row.margin,
        n=min(len(base), len(candidate)),
        clock=clock,
        layout=row.layout,
    )
