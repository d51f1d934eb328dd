"""False alarms, power and smallest detectable slowdown of every rule on the same trials."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from bench.verdicts.peers import PEERS, swapped
from bench.verdicts.traces import Trial
from scipy import stats

from matrix.judge import clocks, looks, paired
from matrix.judge.rows import Row, Sides
from matrix.judge.series import Series, read

SLOWDOWNS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15, 0.20, 0.30)
POWER_AT = (0.02, 0.05, 0.10)
ALARM = 0.025
OURS = ("wall", "wall-clean", "cpu")


@dataclasses.dataclass(frozen=True)
class Line:
    name: str
    false_alarms: float  # share of both labelings
    power: tuple[float, ...]  # at POWER_AT
    mde: float  # slowdown found in 80 %, inf beyond the last tried
    mde_calibrated: float  # with the threshold that alarms in 2.5 % of labelings

    def text(self) -> str:
        power = ", ".join(f"{100 * p:3.0f}" for p in self.power)
        return (
            f"  {self.name:36} {100 * self.false_alarms:5.1f} %   {power}   "
            f"{_percent(self.mde):>6}   {_percent(self.mde_calibrated):>6}"
        )


HEADER = f"  {'rule, at equal cost':36} {'FA':>7}   at 2, 5, 10 %    MDE80   calibrated"


def compare(trials: Sequence[Trial]) -> list[Line]:
    """Every peer and every clock of ours; both labelings of each trial."""
    both = [view for trial in trials for view in (trial, swapped(trial))]
    lines = []
    for rule in PEERS:
        scores = np.array([[rule.score(trial, slow) for trial in both] for slow in SLOWDOWNS])
        lines.append(_line(rule.name, scores, rule.threshold))
    for clock in OURS:
        scores = ours(both, clock)
        if scores is not None:
            lines.append(_line(f"ours, live pairs, {clock}", scores, 1.0))
    return lines


def ours(trials: Sequence[Trial], clock: str) -> np.ndarray | None:
    """t over its critical value, float64[slowdowns, trials]; trials stand for the cells of a family."""
    rows = [_series(trial, clock) for trial in trials]
    if any(one is None for one in rows):
        return None
    found = [one for one in rows if one is not None]
    known = looks.priors(found)
    scores = []
    for slow in SLOWDOWNS:
        ratios = [[x + math.log1p(slow) for x in one.screen.ratios] for one in found]
        tested = looks.test_ratios(ratios, found, known)
        scores.append(tested.delta / (tested.delta - tested.low))
    return np.array(scores)


def _series(trial: Trial, clock: str) -> Series | None:
    values: list[dict[str, float]] = [{}, {}]
    for k, pair in enumerate(trial.pairs):
        if all(clock in process.clocks for process in pair):
            both = clocks.block_of(pair[0].clocks, pair[1].clocks, clock)
            for side, value in zip(values, both, strict=True):
                side[str(k)] = value
    row = Row(
        workload="trial",
        metric=clock,
        unit="ms",
        better="lower",
        margin=0.03,
        clocks={clock: Sides(base=values[0], candidate=values[1])},
    )
    one = read(row)
    return one if isinstance(one, Series) and len(one.screen) >= looks.LEAST_BLOCKS else None


def _line(name: str, scores: np.ndarray, threshold: float) -> Line:
    found = (scores > threshold).mean(axis=1)
    rare = float(np.quantile(scores[0], 1 - ALARM))
    return Line(
        name,
        float(found[0]),
        tuple(float(found[SLOWDOWNS.index(x)]) for x in POWER_AT),
        _mde(found),
        _mde((scores > rare).mean(axis=1)),
    )


def _mde(found: np.ndarray) -> float:
    """Where the share found passes 80 %, between the slowdowns tried."""
    for k in range(len(found)):
        if found[k] >= 0.8:
            if k == 0:
                return 0.0
            part = (0.8 - found[k - 1]) / (found[k] - found[k - 1])
            return SLOWDOWNS[k - 1] + part * (SLOWDOWNS[k] - SLOWDOWNS[k - 1])
    return math.inf


def _percent(x: float) -> str:
    return f">{100 * SLOWDOWNS[-1]:.0f} %" if math.isinf(x) else f"{100 * x:.1f} %"


def upper_bound(count: int, n: int) -> float:
    """Upper 95 % bound of a share of which `count` of n were seen (Clopper and Pearson)."""
    return 1.0 if count >= n else float(stats.beta.ppf(0.95, count + 1, n - count))


assert paired.TAIL == ALARM  # so that false alarms are comparable with the nominal rate
