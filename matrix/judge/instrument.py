"""Is the comparison itself to be trusted? The baseline against itself, and a fixed workload.

A rule that alarms when nothing changed, or a machine that was not the same for both sides,
takes the verdicts back: they become inconclusive and say why.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from matrix.judge import distributions as dist
from matrix.judge import looks, paired, reasons, series
from matrix.judge.numbers import fraction
from matrix.judge.rows import Instrument, Judged, Row, Verdict, Word
from matrix.judge.series import Family, Series

#: a check of the instrument fails a good one with this probability, over all families
CHECK_LEVEL = 0.01
#: delta / SE of the baseline against itself may vary so much more than it should
MOST_VARIANCE = 1.5
#: fewer rows than this tell nothing of a variance
LEAST_VARIANCE_ROWS = 3
#: the control moved when its change is certain and at least this share of its margin
MATERIAL = 0.5
_ALARM = 2 * paired.TAIL

FAILED = "the instrument failed its A/A check"


@dataclasses.dataclass(frozen=True)
class Report:
    """The instrument, and whose verdicts it takes back."""

    instrument: Instrument
    failed: frozenset[Family] = frozenset()
    moved: float | None = None  # log ratio of the control, where it moved


def check(
    aa: Sequence[Row],
    control: Sequence[Row],
    *,
    clocks: Mapping[Family, str],
    known: Mapping[Family, paired.Prior],
) -> Report:
    """What A/A and control rows say. `known`: what the families judged know of their variance."""
    problems: list[str] = []
    by_family: dict[Family, list[Series]] = {}
    for one in _readable(aa, clocks):
        by_family.setdefault(one.family, []).append(one)
    failed, alarms, squares, varying = set(), 0, 0.0, 0
    for family, members in sorted(by_family.items()):
        z = _z(members, known)
        mine = int((np.abs(z) > -dist.normal_quantile(paired.TAIL)).sum())
        random = z[z != 0.0]
        alarms, squares, varying = alarms + mine, squares + float(random @ random), varying + len(random)
        why = _failure(mine, len(members), random, CHECK_LEVEL / len(by_family))
        if why:
            failed.add(family)
            problems.append(f"{FAILED} for {family[1]}: {why}")
    moved, interval, sentence = _control_moved(_readable(control, clocks))
    if sentence:
        problems.append(sentence)
    return Report(
        Instrument(
            aa_rows=sum(map(len, by_family.values())),
            aa_alarms=alarms,
            aa_variance=squares / varying if varying else None,
            control_effect=interval[0] if interval else None,
            control_low=interval[1] if interval else None,
            control_high=interval[2] if interval else None,
            problems=tuple(problems),
        ),
        failed=frozenset(failed),
        moved=moved,
    )


def withhold(rows: Sequence[Row], verdicts: Sequence[Verdict], report: Report) -> Judged:
    """The verdicts, those taken back that the instrument does not stand behind."""
    if report.moved is not None:
        return _withhold_timing(rows, verdicts, report, report.moved)
    kept = [
        _taken_back(verdict, FAILED)
        if series.family(row) in report.failed and verdict.verdict in (Word.REGRESSED, Word.IMPROVED)
        else verdict
        for row, verdict in zip(rows, verdicts, strict=True)
    ]
    return Judged(verdicts=tuple(kept), instrument=report.instrument)


def _withhold_timing(
    rows: Sequence[Row], verdicts: Sequence[Verdict], report: Report, moved: float
) -> Judged:
    judged = [row.timing and not row.fixed and not row.mirrors for row in rows]
    deltas = [v.delta for v, timing in zip(verdicts, judged, strict=True) if timing and v.delta is not None]
    shift = statistics.median(deltas) if deltas else None
    if shift is not None and shift * moved > 0 and abs(shift) >= MATERIAL * abs(moved):
        text = f"common shift {reasons.percent(shift)}: the control moved too, "
        text += "so the machine moved, not the framework"
    else:
        text = f"the control moved by {reasons.percent(moved)}: the machine was not the same for both sides"
    kept = [
        _taken_back(verdict, text)
        if row.timing and not row.fixed and verdict.verdict is not Word.NOT_COMPARABLE
        else verdict
        for row, verdict in zip(rows, verdicts, strict=True)
    ]
    instrument = dataclasses.replace(
        report.instrument,
        common_shift=None if shift is None else fraction(shift),
        problems=(text, *(p for p in report.instrument.problems if p != _moved_by(moved))),
    )
    return Judged(verdicts=tuple(kept), instrument=instrument)


def _taken_back(verdict: Verdict, reason: str) -> Verdict:
    return dataclasses.replace(
        verdict, verdict=Word.INCONCLUSIVE, reason=reason, needed_blocks=None, needed_s=None
    )


def _readable(rows: Sequence[Row], clocks: Mapping[Family, str]) -> list[Series]:
    found = (series.read(row, clocks.get(series.family(row), "")) for row in rows)
    return [x for x in found if isinstance(x, Series) and len(x.all) >= looks.LEAST_BLOCKS]


def _z(rows: Sequence[Series], known: Mapping[Family, paired.Prior]) -> paired.Floats:
    return looks.test_ratios([one.all.ratios for one in rows], rows, known).z()


def _failure(alarms: int, rows: int, z: paired.Floats, level: float) -> str:
    """Why the baseline against itself looks unlike itself; empty when it does not."""
    if dist.binomial_at_least(alarms, rows, _ALARM) < level:
        return f"{alarms} of {rows} rows of the baseline against itself look changed"
    if len(z) >= LEAST_VARIANCE_ROWS:
        variance = float(z @ z) / len(z)
        limit = max(MOST_VARIANCE, dist.chi2_quantile(1 - level, len(z)) / len(z))
        if variance > limit:
            return f"the baseline against itself varies {math.sqrt(variance):.1f} times as much as estimated"
    return ""


def _control_moved(
    rows: Sequence[Series],
) -> tuple[float | None, tuple[float, float, float] | None, str]:
    """The log ratio of a control that moved, effect and interval of the most moved one, a sentence.

    It moved when nothing but a change explains it (two-sided p at most 1 % over all control
    rows) and the change is at least half of what matters: less does not explain a verdict.
    """
    if not rows:
        return None, None, ""
    tested = looks.test_ratios([one.all.ratios for one in rows], rows, {})
    p = 2 * np.minimum(tested.p_worse, tested.p_better)
    material = (p <= CHECK_LEVEL / len(rows)) & (np.abs(tested.delta) >= MATERIAL * tested.margin)
    order = np.where(material, 1.0, 0.0) + np.abs(tested.delta) / (1.0 + np.abs(tested.delta))
    k = int(np.argmax(order))
    interval = fraction(tested.delta[k]), fraction(tested.low[k]), fraction(tested.high[k])
    if not material[k]:
        return None, interval, ""
    delta = float(tested.delta[k])
    return delta, interval, _moved_by(delta)


def _moved_by(delta: float) -> str:
    return f"the control, a fixed workload, moved by {reasons.percent(delta)}"
