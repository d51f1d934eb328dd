"""Other tools' rules, written from their documentation and sources, at the same cost as ours.

A rule gives a score, larger where B looks slower, and the threshold above which it alarms. A
score can also be calibrated: with the threshold at which it alarms as rarely as ours does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from bench.verdicts.traces import Process, Trial
from scipy import stats

Score = Callable[[Trial, float], float]
RESAMPLES = 500


@dataclasses.dataclass(frozen=True)
class Rule:
    """`score(trial, slowdown)`: B's times are multiplied by 1 + slowdown."""

    name: str
    score: Score
    threshold: float


def swapped(trial: Trial) -> Trial:
    """The other labelling of the same measurement."""
    return Trial(
        pairs=[(b, a) for a, b in trial.pairs],
        halves=trial.halves[::-1],
        rounds=trial.rounds[::-1],
        long=trial.long[::-1],
    )


def _long(score: Callable[[np.ndarray, np.ndarray], float]) -> Score:
    return lambda trial, slow: score(trial.long[0], trial.long[1] * (1 + slow))


def _means(processes: Sequence[Process], slow: float = 0.0) -> np.ndarray:
    return np.array([p.wall.mean() for p in processes]) * (1 + slow)


def _welch(a: np.ndarray, b: np.ndarray) -> float:
    """t over its critical value, two-sided 5 %."""
    se2 = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    nu = sum(se2) ** 2 / (se2[0] ** 2 / (len(a) - 1) + se2[1] ** 2 / (len(b) - 1))
    return float((b.mean() - a.mean()) / np.sqrt(sum(se2)) / stats.t.ppf(0.975, nu))


def _pooled(a: np.ndarray, b: np.ndarray) -> float:
    nu = len(a) + len(b) - 2
    s2 = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / nu
    return float((b.mean() - a.mean()) / np.sqrt(s2 * (1 / len(a) + 1 / len(b))) / stats.t.ppf(0.975, nu))


def _rank(a: np.ndarray, b: np.ndarray) -> float:
    """-log10 of the two-sided p of the Mann-Whitney test where B is larger, else negative."""
    result = stats.mannwhitneyu(b, a, alternative="two-sided")
    size = -np.log10(max(result.pvalue, 1e-300))
    return float(size if result.statistic > len(a) * len(b) / 2 else -size)


def _batches(x: np.ndarray, count: int) -> np.ndarray:
    return np.array([part.mean() for part in np.array_split(x, min(count, len(x)))])


def _criterion(a: np.ndarray, b: np.ndarray) -> float:
    """Lower end of the 95 % bootstrap interval of the change of 100 samples' mean."""
    rng = np.random.default_rng(0)
    a, b = _batches(a, 100), _batches(b, 100)
    means = [x[rng.integers(0, len(x), (RESAMPLES, len(x)))].mean(axis=1) for x in (a, b)]
    return float(np.quantile(means[1] / means[0] - 1, 0.025))


def _values(processes: Sequence[Process]) -> np.ndarray:
    """Three values a process."""
    return np.concatenate([_batches(p.wall, 3) for p in processes])


def _pyperf(trial: Trial, slow: float) -> float:
    return _pooled(_values(trial.halves[0]), _values(trial.halves[1]) * (1 + slow))


def _hyperfine(trial: Trial, slow: float) -> float:
    return _welch(_means(trial.halves[0]), _means(trial.halves[1], slow))


def _benchstat(trial: Trial, slow: float) -> float:
    return _rank(_means(trial.halves[0]), _means(trial.halves[1], slow))


def _asv(trial: Trial, slow: float) -> float:
    """Two rounds; the factor counts where the rank test of all samples says p < 0.002."""
    a = np.concatenate([p.wall for p in trial.rounds[0]])
    b = np.concatenate([p.wall for p in trial.rounds[1]]) * (1 + slow)
    certain = _rank(a, b) > -np.log10(0.002)
    return float(np.median(b) / np.median(a) - 1) if certain else -1.0


def _conbench(trial: Trial, slow: float) -> float:
    best = [min(p.wall.min() for p in side) for side in trial.halves]
    return float(best[1] * (1 + slow) / best[0] - 1)


def _noise_legacy(a: np.ndarray, b: np.ndarray) -> float:
    noise = min(a.std(ddof=1) / a.mean(), b.std(ddof=1) / b.mean())
    return float((b.mean() / a.mean() - 1) / noise)


def _noise_robust(a: np.ndarray, b: np.ndarray) -> float:
    """The gap between the intervals [min, third quartile]."""
    top = np.quantile(a, 0.75)
    return float((b.min() - top) / top)


PEERS = (
    Rule("pytest-benchmark mean:5%", _long(lambda a, b: float(b.mean() / a.mean() - 1)), 0.05),
    Rule("pytest-benchmark median:5%", _long(lambda a, b: float(np.median(b) / np.median(a) - 1)), 0.05),
    Rule("TorchBench 7 %, all iterations", _long(lambda a, b: float(np.median(b) / np.median(a) - 1)), 0.07),
    Rule(
        "TorchBench 7 %, 10 + 15 iterations",
        _long(lambda a, b: float(np.median(b[10:25]) / np.median(a[10:25]) - 1)),
        0.07,
    ),
    Rule("criterion (bootstrap, +-1 %)", _long(_criterion), 0.01),
    Rule(
        "google/benchmark U test, 10 reps",
        _long(lambda a, b: _rank(_batches(a, 10), _batches(b, 10))),
        -np.log10(0.05),
    ),
    Rule("pyperf pooled t", _pyperf, 1.0),
    Rule("hyperfine Welch", _hyperfine, 1.0),
    Rule("benchstat Mann-Whitney", _benchstat, -np.log10(0.05)),
    Rule("asv continuous, 1.1x", _asv, 0.1),
    Rule("conbench best, 5 %", _conbench, 0.05),
    Rule("nvbench legacy", _long(_noise_legacy), 1.0),
    Rule("nvbench robust (time part)", _long(_noise_robust), 0.005),
    Rule("Welch on iterations", _long(_welch), 1.0),
)

#: tools of the same field whose rule cannot be given these trials
NOT_RUN = {
    "duet (both sides at once)": "needs a free core, or device, for each side",
    "apache/otava, mongodb signal-processing": "need results from after the change: a series of commits",
    "bencher": "its thresholds need a history; without one it compares means by a percentage, as above",
    "MLPerf LoadGen": "an absolute bound on one system, no comparison",
    "triton do_bench, torch.utils.benchmark, perf_analyzer": "leave the comparison to the reader",
    "Chromium Pinpoint": "a Mann-Whitney test as above, repeated while it is undecided",
}
