"""A stored run is judged as it was measured: the driver's decisions are the judge's."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from matrix.judge import looks
from matrix.judge.rows import Row, Sides, Stage, Verdict, Word
from matrix.judge.verdicts import judge

METRICS = {"latency_ms": 0.015, "compile_s": 0.05, "cpu_time_ms": 0.004}  # block sd
EFFECTS = {"latency_ms": 0.06, "compile_s": 0.0, "cpu_time_ms": -0.05}  # of every fifth workload
WORKLOADS = 25


class Measuring:
    """A driver: blocks of a workload serve all its metrics, and go where something is open."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.stages: list[list[Stage]] = [[] for _ in range(WORKLOADS)]
        self.ratios: dict[tuple[int, str], list[float]] = {
            (w, m): [] for w in range(WORKLOADS) for m in METRICS
        }
        self.decided: dict[tuple[str, str], str] = {}

    def rows(self) -> list[Row]:
        return [self._row(w, m) for w in range(WORKLOADS) for m in METRICS]

    def block(self, workload: int, stage: Stage) -> None:
        self.stages[workload].append(stage)
        for metric, sd in METRICS.items():
            effect = EFFECTS[metric] if workload % 5 == 0 else 0.0
            self.ratios[workload, metric].append(effect + sd * self.rng.standard_normal())

    def run(self) -> None:
        for _ in range(200):
            wanted: dict[int, Stage] = {}
            for state in looks.state_of(self.rows()):
                key = (state.workload, state.metric)
                if state.status == "decided":
                    self.decided.setdefault(key, state.reason)
                if state.stage is not None:
                    w = int(state.workload)
                    wanted[w] = Stage.SCREEN if Stage.SCREEN in (state.stage, wanted.get(w)) else state.stage
            if any(stage is Stage.SCREEN for stage in wanted.values()):
                wanted = {w: stage for w, stage in wanted.items() if stage is Stage.SCREEN}
            if not wanted:
                return
            for w, stage in wanted.items():
                self.block(w, stage)
        raise AssertionError("the driver does not come to an end")

    def _row(self, w: int, metric: str) -> Row:
        ratios = self.ratios[w, metric]
        labels = [str(i + 1) for i in range(len(ratios))]
        return Row(
            workload=str(w),
            metric=metric,
            unit="ms",
            better="lower",
            margin=0.03,
            clocks={
                "": Sides(
                    base=dict.fromkeys(labels, 1.0),
                    candidate={x: math.exp(r) for x, r in zip(labels, ratios, strict=True)},
                )
            },
            stages=dict(zip(labels, self.stages[w], strict=True)),
        )


@pytest.mark.parametrize("seed", range(6))
def test_every_row_ends_as_the_driver_left_it(seed: int) -> None:
    driver = Measuring(seed)
    driver.run()
    verdicts: Mapping[tuple[str, str], Verdict] = {
        (v.workload, v.metric): v for v in judge(driver.rows()).verdicts
    }
    certified = {key for key, reason in driver.decided.items() if reason.startswith("no worse")}
    assert len(certified) > 30
    for key in certified:
        # one that other metrics' blocks made a suspect of being better may have been confirmed as that
        assert verdicts[key].verdict in (Word.NO_WORSE, Word.IMPROVED), (key, verdicts[key])
    for w in range(0, WORKLOADS, 5):
        assert verdicts[str(w), "latency_ms"].verdict is Word.REGRESSED
        assert verdicts[str(w), "cpu_time_ms"].verdict is Word.IMPROVED


def test_judging_again_in_another_order_says_the_same() -> None:
    driver = Measuring(1)
    driver.run()
    rows = driver.rows()
    assert judge(rows).verdicts == judge(rows[::-1]).verdicts[::-1]
