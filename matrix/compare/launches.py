"""Values of one cell's launches, by metric, clock and block: what a row of a comparison is made of.

A launch has one value a metric (the median of its samples, or a phase); the launches of a
block are averaged. What a launch did not measure is simply not there.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matrix.consolidate import reduce
from matrix.judge import clocks
from matrix.records import VOID, LaunchRecord
from matrix_adapters.protocol import State

LATENCY, THROUGHPUT, CPU_TIME = "latency_ms", "throughput_items_s", "cpu_time_ms"
FIRST_OUTPUT, ENERGY = "time_to_first_output_s", "energy_j_per_item"
WALL, CLEAN, CPU = "wall", "wall-clean", "cpu"

#: CPU time is the cost of a call only where one thread computes and does not wait
_BUSY_SHARE = 0.95
#: undisturbed samples show that it does; on a busy machine only some of the processes have any
_LEAST_VALID = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """The good launches of one cell that take part, the last attempt at each block."""

    timed: Mapping[str, LaunchRecord]  # by block
    memory: LaunchRecord | None
    batch: int
    threads: int

    def clocks(self) -> Mapping[str, Mapping[str, float]]:
        """What `matrix.judge.clocks` said of each block's process; those without are left out."""
        found = {block: _numbers(launch.sampling.get("clocks")) for block, launch in self.timed.items()}
        return {block: clock for block, clock in found.items() if clock}

    def turns(self, clock: str) -> Mapping[str, tuple[float | None, ...]]:
        """The same of each block's process slice by slice; blocks of fresh launches have none."""
        found = {}
        for block, launch in self.timed.items():
            kept = launch.sampling.get("clocks")
            turns = kept.get("turns") if isinstance(kept, Mapping) else None
            times = turns.get(clock) if isinstance(turns, Mapping) else None
            if isinstance(times, (list, tuple)):
                found[block] = tuple(_number(time) for time in times)
        return found

    def by_metric(self) -> dict[str, dict[str, float]]:
        """metric -> block -> value; latency and CPU time by clock are `by_clock`'s."""
        found: dict[str, dict[str, float]] = {}
        for block, launch in self.timed.items():
            values: dict[str, float | None] = dict(launch.metrics)
            values[FIRST_OUTPUT] = reduce.first_output_s(launch)
            values[ENERGY] = reduce.energy_j_per_item(launch, max(self.batch, 1))
            for name, value in values.items():
                if value is not None:
                    found.setdefault(name, {})[block] = value
        return found

    def once(self) -> dict[str, float]:
        """Metrics of the memory launch, which is one process and untimed."""
        return dict(self.memory.metrics) if self.memory is not None else {}


def measured(
    launches: Iterable[LaunchRecord], *, batch: int, threads: int, pair: str | None = None
) -> Measured:
    """The launches to compare by. `pair` takes those of one live pair; None takes all, pilots excepted."""
    timed: dict[str, LaunchRecord] = {}
    memory = None
    for launch in launches:
        if launch.purpose == "memory" and launch.state is State.OK:
            memory = launch
        if launch.purpose != "measure" or (pair is not None and launch.pair != pair):
            continue
        if launch.stage == VOID:
            continue
        block = str(launch.block) if pair is not None or not launch.pair else f"{launch.pair}/{launch.block}"
        if launch.state is State.OK:
            timed[block] = launch
        else:
            timed.pop(block, None)  # the last attempt counts
    return Measured(timed=timed, memory=memory, batch=batch, threads=threads)


def wall(side: Measured, values: Mapping[str, float]) -> Mapping[str, float]:
    """Latency by block: by the wall clock of `clocks` where every block has it, as reported otherwise."""
    found = side.clocks()
    if found and all(block in found and WALL in found[block] for block in side.timed):
        return {block: float(clock[WALL]) for block, clock in found.items()}
    return values


def clean(side: Measured) -> Mapping[str, float] | None:
    """Latency by block over the samples that nothing interrupted; None unless every block has it."""
    found = side.clocks()
    if not found or not all(CLEAN in found.get(block, {}) for block in side.timed):
        return None
    return {block: float(clock[CLEAN]) for block, clock in found.items()}


def clean_shares(side: Measured) -> dict[str, float]:
    """Which share of each block's samples nothing interrupted."""
    return {block: clock["clean_share"] for block, clock in side.clocks().items() if "clean_share" in clock}


def cpu(side: Measured, values: Mapping[str, float]) -> Mapping[str, float] | None:
    """CPU time a call by block; None unless it is the cost of the call."""
    found = side.clocks()
    if found:
        valid = sum(bool(found.get(block, {}).get("cpu_valid")) for block in side.timed)
        if valid < max(1.0, _LEAST_VALID * len(side.timed)):
            return None
        return {block: float(clock[CPU]) for block, clock in found.items()}
    if side.threads != 1 or not values:
        return None
    for block, launch in side.timed.items():
        latency = launch.metrics.get(LATENCY)
        if latency is None or values.get(block, 0.0) < _BUSY_SHARE * latency:
            return None
    return values


def by_turns(
    base: Measured, candidate: Measured, clock: str, values: tuple[Mapping[str, float], Mapping[str, float]]
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """`values` of both sides by block, those of live pairs compared turn by turn."""
    turns = base.turns(clock), candidate.turns(clock)
    paired = {
        block: clocks.paired_by_turns(mine, values[1][block], (turns[0][block], turns[1][block]))
        for block, mine in values[0].items()
        if block in values[1] and block in turns[0] and block in turns[1]
    }
    return (
        {**values[0], **{block: mine for block, (mine, _) in paired.items()}},
        {**values[1], **{block: other for block, (_, other) in paired.items()}},
    )


def majority_flag(launches: Sequence[LaunchRecord], codes: Iterable[str]) -> str:
    """The text of a flag that more than half of the launches carry; empty when there is none."""
    for code in codes:
        texts = [flag.text for launch in launches for flag in launch.flags if flag.code == code]
        if len(texts) * 2 > len(launches):
            return f"{texts[0]} (in {len(texts)} of {len(launches)} launches)"
    return ""


def block_seconds(base: Measured, candidate: Measured) -> float | None:
    """What a block of both sides costs: of a live pair its own time, else that of both launches."""
    costs = []
    for block in base.timed.keys() & candidate.timed.keys():
        pair = base.timed[block], candidate.timed[block]
        alive = pair[0].sampling.get("block_s")
        if isinstance(alive, (int, float)):
            costs.append(float(alive))
            continue
        spent = [_seconds(launch) for launch in pair]
        if None not in spent:
            costs.append(sum(s for s in spent if s is not None))
    return statistics.median(costs) if costs else None


def _numbers(kept: Any) -> dict[str, float]:
    """What is a number of the clocks that a launch left; a file may hold anything."""
    if not isinstance(kept, Mapping):
        return {}
    numbers = {name: _number(value) for name, value in kept.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _seconds(launch: LaunchRecord) -> float | None:
    try:
        began = datetime.datetime.fromisoformat(launch.started)
        ended = datetime.datetime.fromisoformat(launch.ended)
    except ValueError:
        return None
    return max(0.0, (ended - began).total_seconds())
