"""A simulated machine for comparing layouts: time passes, other programs come and go.

One call costs 20 ms of CPU time. Every process has its own level (sd 0.5 %), every call its own
noise (2 %), and the wall time is stretched by what the machine does at that moment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from bench.verdicts.traces import Process, Trial

from matrix.judge import clocks

STATES = ("calm", "drift", "bursty", "overload")
CALL_MS, START_S, BUDGET_S = 20.0, 0.3, 10.0
_STEP_S = 0.02


@dataclasses.dataclass
class Machine:
    """A clock, and how much slower than alone things run at each moment."""

    slowdown: np.ndarray  # log, one entry a step
    own: float  # log sd of a call's own stretch while disturbed
    rng: np.random.Generator
    now: float = 0.0

    @classmethod
    def of(cls, state: str, seconds: float, rng: np.random.Generator) -> Machine:
        steps = int(seconds / _STEP_S) + 1
        if state == "calm":
            return cls(0.003 * _memory(steps, 1.0, rng), 0.0, rng)
        if state == "drift":
            return cls(0.05 * _memory(steps, 30.0, rng), 0.0, rng)
        if state == "bursty":
            log, busy = np.zeros(steps), False
            at = 0
            while at < steps:
                length = max(1, int(rng.exponential(3.0 if busy else 5.0) / _STEP_S))
                log[at : at + length] = np.log(1 + rng.uniform(0.2, 1.2)) if busy else 0.0
                at, busy = at + length, not busy
            return cls(log, 0.15, rng)
        if state == "overload":
            return cls(np.maximum(0.8 + 0.35 * _memory(steps, 1.5, rng), 0.0), 0.25, rng)
        raise ValueError(state)

    def run(self, level: float, calls: int) -> tuple[list[float], list[float]]:
        """Wall and CPU milliseconds of so many calls from now on."""
        wall, cpu = [], []
        for _ in range(calls):
            slow = self.slowdown[int(self.now / _STEP_S) % len(self.slowdown)]
            busy = CALL_MS * np.exp(level + 0.02 * self.rng.standard_normal() + 0.02 * slow)
            stretch = slow * np.exp(self.own * self.rng.standard_normal()) if self.own else slow
            wall.append(busy * np.exp(stretch))
            cpu.append(busy)
            self.now += wall[-1] / 1e3
        return wall, cpu


def trial(state: str, rng: np.random.Generator) -> Trial:
    """A and B, 10 s in each layout, start-up included, each on its own stretch of time."""
    return Trial(
        pairs=_live(state, rng),
        halves=_fresh(state, rng, "AB"),
        rounds=_fresh(state, rng, "ABBA"),
        long=_long(state, rng),
    )


def _live(state: str, rng: np.random.Generator) -> list[tuple[Process, Process]]:
    """Pairs of 4 rounds of ABBA or BAAB in slices of 60 ms."""
    machine, pairs = Machine.of(state, 4 * BUDGET_S, rng), []
    while machine.now < BUDGET_S - 0.5 or len(pairs) < 2:
        machine.now += START_S
        levels = 0.005 * rng.standard_normal(2)
        parts: list[list[tuple[list[float], list[float]]]] = [[], []]
        for _ in range(4):
            for side in (0, 1, 1, 0) if rng.random() < 0.5 else (1, 0, 0, 1):
                parts[side].append(machine.run(levels[side], 3))
        pairs.append((_process(parts[0]), _process(parts[1])))
    return pairs


def _fresh(state: str, rng: np.random.Generator, order: str) -> tuple[list[Process], list[Process]]:
    """Short fresh processes, the time divided among `order`."""
    machine = Machine.of(state, 4 * BUDGET_S, rng)
    found: dict[str, list[Process]] = {"A": [], "B": []}
    for k, side in enumerate(order, 1):
        until, first = BUDGET_S * k / len(order), True
        while machine.now < until - 0.3 or first:
            machine.now += START_S / 2  # one process alone
            found[side].append(_process([machine.run(0.005 * rng.standard_normal(), 21)]))
            first = False
    return found["A"], found["B"]


def _long(state: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    machine, sides = Machine.of(state, 4 * BUDGET_S, rng), []
    for k in (1, 2):
        machine.now += START_S / 2
        level, wall = 0.005 * rng.standard_normal(), []
        while machine.now < k * BUDGET_S / 2 or len(wall) < 30:
            wall += machine.run(level, 1)[0]
        sides.append(np.array(wall))
    return sides[0], sides[1]


def _process(slices: Sequence[tuple[list[float], list[float]]]) -> Process:
    wall = np.concatenate([w for w, _ in slices])
    cpu = np.concatenate([c for _, c in slices])
    number = np.repeat(np.arange(len(slices)), [len(w) for w, _ in slices])
    kept = clocks.warm(number, len(wall))
    samples = {
        "wall_ns": (wall * 1e6).astype(np.int64),
        "process_ns": (cpu * 1e6).astype(np.int64),
        "nivcsw": (wall > 1.02 * cpu).astype(np.int64),
        "calls": np.ones(len(wall), dtype=np.int64),
        "slice": number,
    }
    return Process(wall[kept], clocks.clocks(samples))


def _memory(steps: int, seconds: float, rng: np.random.Generator) -> np.ndarray:
    """A standard normal process that forgets within so many seconds."""
    from scipy.signal import lfilter

    keep = np.exp(-_STEP_S / seconds)
    drive = np.sqrt(1 - keep**2) * rng.standard_normal(steps)
    drive[0] = rng.standard_normal()
    return lfilter([1.0], [1.0, -keep], drive)
