"""Rows of what this product measured: the launches of two cells, block by block."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from matrix.catalog.types import Metric
from matrix.compare import launches
from matrix.compare.launches import CLEAN, CPU, CPU_TIME, LATENCY, THROUGHPUT, WALL, Measured
from matrix.judge import distributions, paired
from matrix.judge.rows import Layout, Row, Sides, Stage
from matrix.records import LaunchRecord

#: flags of a launch whose steady phase was not steady, so that nothing is to be certified from it
UNSTEADY = ("not_stationary", "late_compile", "throttled")
#: metrics of the steady phase, to which they apply
STEADY = (LATENCY, THROUGHPUT, CPU_TIME)
#: units of sizes: a busy machine does not change them
_SIZES = ("bytes",)

#: shares of undisturbed samples that differ by less choose the same samples
_SAME_SHARE = 0.02
#: two-sided p value from which on they differ
_OTHER_SHARE_P = 0.01
_STAGES = tuple(Stage)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What every row of a comparison has in common."""

    registry: Mapping[str, Metric]
    margins: Mapping[str, float] = dataclasses.field(default_factory=dict)  # instead of the registry's
    metrics: tuple[str, ...] = ()  # only these; all where empty

    def margin(self, metric: str) -> float | None:
        """The smallest change that matters; None where the metric gets no verdict."""
        if metric not in self.registry or (self.metrics and metric not in self.metrics):
            return None
        return self.margins.get(metric, self.registry[metric].margin)

    def margin_at(self, metric: str, clocks: Mapping[str, Sides]) -> float:
        """The margin where both sides have such values: what is small may change by more before it matters.

        The same whichever side is called the base: the typical value is that of both.
        """
        margin, least = self.margin(metric), self.registry[metric].least
        if margin is None:
            raise ValueError(f"{metric} has no margin")
        if least is None or metric in self.margins:
            return margin
        sides = [side for one in clocks.values() for side in (one.base, one.candidate)][:2]
        medians = [statistics.median(found) for s in sides if (found := [v for v in s.values() if v > 0])]
        if not medians:
            return margin
        return max(margin, least / statistics.geometric_mean(medians))

    def unjudged(self, metric: str) -> bool:
        """Whether only a margin is missing."""
        return metric in self.registry and not self.metrics and self.margin(metric) is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bout:
    """One workload on both sides, ready to become rows."""

    label: str
    family: str  # hardware and level
    base: Sequence[LaunchRecord]
    candidate: Sequence[LaunchRecord]
    batch: int
    threads: tuple[int, int]  # in effect, base and candidate
    pair: str | None = None  # the name of the live pair; None where none was
    layout: Layout = "fresh-launches"
    not_comparable: str = ""


def pair_of(
    base: Sequence[LaunchRecord], candidate: Sequence[LaunchRecord], names: Sequence[str]
) -> str | None:
    """The live pair that these launches are the halves of, if they are, whichever side was which."""
    for name in names:
        if all(any(launch.pair == name for launch in side) for side in (base, candidate)):
            return name
    return None


def layout_of(base: Sequence[LaunchRecord], candidate: Sequence[LaunchRecord], pair: str | None) -> Layout:
    """How launches of one run lie to each other in time."""
    if pair is not None:
        return "live-pair"
    paired = any(launch.pair for side in (base, candidate) for launch in side)
    return "separate-runs" if paired else "fresh-launches"  # halves of other pairs met nobody of these


def rows(bout: Bout, rules: Rules) -> Iterator[Row]:
    """One row for each metric that either side has and that has a margin."""
    sides = [
        launches.measured(side, batch=bout.batch, threads=threads, pair=bout.pair)
        for side, threads in zip((bout.base, bout.candidate), bout.threads, strict=True)
    ]
    base, candidate = sides
    values = [side.by_metric() for side in sides]
    once = [side.once() for side in sides]
    block_s = launches.block_seconds(base, candidate)
    stages = _stages(base, candidate)
    unsteady = _unsteady(base, candidate)
    latency = _latency(base, candidate, values)
    cpu = _cpu(base, candidate, values)
    for name, metric in rules.registry.items():
        if rules.margin(name) is None:
            continue
        mirrors, clocks = "", dict[str, Sides]()
        not_comparable = bout.not_comparable
        if name == LATENCY:
            clocks = latency
        elif name == THROUGHPUT:
            clocks = _throughput(latency, bout.batch)
            mirrors = LATENCY if rules.margin(LATENCY) is not None else ""
        elif name == CPU_TIME:
            clocks, why = cpu
            not_comparable = not_comparable or why
        elif any(name in value for value in values):
            clocks = {"": Sides(base=values[0].get(name, {}), candidate=values[1].get(name, {}))}
        elif all(name in found for found in once):
            clocks = {"": Sides(base=_single(once[0], name), candidate=_single(once[1], name))}
        if not clocks or _never_happened(clocks):
            continue
        yield Row(
            workload=bout.label,
            metric=name,
            unit=metric.unit,
            better=metric.better,
            margin=rules.margin_at(name, clocks),
            clocks=clocks,
            family=f"{bout.family}|{name}",
            stages=stages,
            layout=bout.layout,
            mirrors=mirrors,
            timing=metric.unit not in _SIZES,
            unsteady=unsteady if name in STEADY else "",
            not_comparable=not_comparable,
            block_s=block_s,
        )


def _latency(
    base: Measured, candidate: Measured, values: Sequence[Mapping[str, Mapping[str, float]]]
) -> dict[str, Sides]:
    mine, other = (
        launches.wall(side, value.get(LATENCY, {}))
        for side, value in zip((base, candidate), values, strict=True)
    )
    if not mine and not other:
        return {}
    clocks = {WALL: _sides(base, candidate, WALL, mine, other)}
    clean = launches.clean(base), launches.clean(candidate)
    if clean[0] and clean[1] and _as_clean(base, candidate):
        clocks[CLEAN] = _sides(base, candidate, CLEAN, clean[0], clean[1])
    return clocks


def _sides(
    base: Measured, candidate: Measured, clock: str, mine: Mapping[str, float], other: Mapping[str, float]
) -> Sides:
    paired = launches.by_turns(base, candidate, clock, (mine, other))
    return Sides(base=paired[0], candidate=paired[1])


def _as_clean(base: Measured, candidate: Measured) -> bool:
    """Whether the share of undisturbed samples is the same on both sides, paired by block.

    Where it differs, what is kept was chosen differently, and the choice could make the
    difference. The block is the sample here too: samples of one process are not independent.
    """
    mine, other = launches.clean_shares(base), launches.clean_shares(candidate)
    differences = [other[block] - share for block, share in mine.items() if block in other]
    mean, variance = paired.moments(differences) if differences else (0.0, 0.0)
    if abs(mean) <= _SAME_SHARE:
        return bool(differences)
    if variance == 0.0 or len(differences) < 2:
        return False
    t = abs(mean) / math.sqrt(variance / len(differences))
    return float(distributions.t_below(-t, len(differences) - 1)) * 2 > _OTHER_SHARE_P


def _throughput(latency: Mapping[str, Sides], batch: int) -> dict[str, Sides]:
    def rate(values: Mapping[str, float]) -> dict[str, float]:
        return {block: batch * 1e3 / ms for block, ms in values.items() if ms > 0}

    return {
        clock: Sides(base=rate(sides.base), candidate=rate(sides.candidate))
        for clock, sides in latency.items()
    }


def _cpu(
    base: Measured, candidate: Measured, values: Sequence[Mapping[str, Mapping[str, float]]]
) -> tuple[dict[str, Sides], str]:
    """CPU time where it is the cost of the call; a clock that holds on one side only compares nothing."""
    mine, other = (
        launches.cpu(side, value.get(CPU_TIME, {}))
        for side, value in zip((base, candidate), values, strict=True)
    )
    if not mine and not other:
        return {}, ""
    if mine and other:
        return {"": _sides(base, candidate, CPU, mine, other)}, ""
    where = "base" if mine else "candidate"
    sides = Sides(base=mine or {}, candidate=other or {})
    return {
        "": sides
    }, f"CPU time is the cost of a call on one side only ({where}): the other waits or computes beside"


def _single(values: Mapping[str, float], name: str) -> dict[str, float]:
    return {"0": values[name]}


def _never_happened(clocks: Mapping[str, Sides]) -> bool:
    """A phase that took no time on either side (nothing is compiled) is no row."""
    found = [v for sides in clocks.values() for side in (sides.base, sides.candidate) for v in side.values()]
    return not any(found)


def _stages(base: Measured, candidate: Measured) -> dict[str, Stage]:
    return {
        block: Stage(launch.stage)
        for block, launch in base.timed.items()
        if launch.stage in _STAGES and block in candidate.timed
    }


def _unsteady(base: Measured, candidate: Measured) -> str:
    for name, side in (("base", base), ("candidate", candidate)):
        text = launches.majority_flag(list(side.timed.values()), UNSTEADY)
        if text:
            return f"{name}: {text}"
    return ""
