"""One live pair: two fresh processes, alive together, that take turns in short slices.

Both start at once, each imports, loads, warms up and then waits. Then a fair coin decides
in each round whether the slices go base, candidate, candidate, base or the other way round:
whatever drifts slower than a round hits both alike, and nobody can know the order before.
While one is timed the other is parked in a system call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from matrix.execution.local import Startable
from matrix_adapters.protocol import Result, Task

#: a slice lasts about so long; long enough to reach steady caches, short beside drift
SLICE_S = 0.1
LEAST_ROUNDS, MOST_ROUNDS = 4, 20
#: a slice with a second sample can drop its first one, which finds cold caches; not beyond this
_LONGEST_SLICE_S = 0.5


class Live(Protocol):
    """One half, started: see `matrix.execution.live`."""

    def wait_ready(self) -> bool: ...
    def run(self, samples: int) -> float | None: ...
    def finish(self) -> Result: ...


class OpenLive(Protocol):
    """`matrix.execution.live.open_live`, or what stands for it in a test."""

    def __call__(
        self, built: Startable, task: Task, folder: Path, *, timeout_s: float, stall_s: float, cancel: Any
    ) -> AbstractContextManager[Live]: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frozen:
    """What a pilot found out and every block then keeps to, on both sides."""

    warmup_calls: int
    calls: int  # per sample
    samples: int  # per slice
    rounds: int

    def options(self) -> dict[str, Any]:
        """For the worker's task."""
        return {"warmup_calls": self.warmup_calls, "calls": self.calls}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Half:
    """One side of a pair, about to be started."""

    built: Startable
    task: Task
    folder: Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """How a pair ended: a result for each side, and in what order things were done."""

    results: tuple[Result, Result]  # base, candidate
    facts: Mapping[str, Any]
    ready_s: float  # from the start until both waited
    sample_s: float | None  # seconds a sample, mean of both sides; None when no slice was timed
    seconds: float


def run_pair(
    base: Half,
    candidate: Half,
    frozen: Frozen | None,
    *,
    chance: random.Random,
    open_live: OpenLive,
    timeout_s: float,
    stall_s: float,
    cancel: Any,
) -> Ended:
    """Run a block (or a pilot, where nothing is frozen yet). Both are gone on return.

    A side that ends early ends the pair: the other is told to quit, and each result says
    how its own side ended.
    """
    began = time.monotonic()
    halves = (base, candidate)
    first = chance.randrange(2)
    order: list[str] = []
    sample_s: float | None = None
    with contextlib.ExitStack() as stack:
        lives: dict[int, Live] = {}
        for side in (first, 1 - first):
            half = halves[side]
            lives[side] = stack.enter_context(
                open_live(
                    half.built, half.task, half.folder, timeout_s=timeout_s, stall_s=stall_s, cancel=cancel
                )
            )
        ready = [lives[side].wait_ready() for side in (first, 1 - first)]
        ready_s = time.monotonic() - began
        if all(ready):
            sample_s = _take_turns(lives, frozen, chance, order)
        results = (lives[0].finish(), lives[1].finish())
    facts = {
        "layout": "live-pair",
        "order": " ".join(order),
        "started_first": "base" if first == 0 else "candidate",
        "ready_s": round(ready_s, 4),
    }
    return Ended(
        results=results,
        facts=facts,
        ready_s=ready_s,
        sample_s=sample_s,
        seconds=time.monotonic() - began,
    )


def _take_turns(
    lives: Mapping[int, Live], frozen: Frozen | None, chance: random.Random, order: list[str]
) -> float | None:
    """All rounds; seconds a sample, or None when a side ended."""
    if frozen is None:
        found = [_seconds_a_sample(lives[side].run) for side in (0, 1)]
        if found[0] is None or found[1] is None:
            return None
        sample_s = (found[0] + found[1]) / 2
        samples, rounds = slice_samples(sample_s), 2
    else:
        samples, rounds = frozen.samples, frozen.rounds
    taken, count = 0.0, 0
    for _ in range(rounds):
        sides = (0, 1, 1, 0) if chance.random() < 0.5 else (1, 0, 0, 1)
        order.append("".join("AB"[side] for side in sides))
        for side in sides:
            seconds = lives[side].run(samples)
            if seconds is None:
                return None
            taken, count = taken + seconds, count + samples
    return taken / count


def _seconds_a_sample(run: Callable[[int], float | None]) -> float | None:
    seconds = run(3)
    return None if seconds is None else seconds / 3


def slice_samples(sample_s: float) -> int:
    """How many samples a slice takes: about `SLICE_S`, two at least where they are not too long."""
    if 2 * sample_s > _LONGEST_SLICE_S:
        return 1
    return max(2, round(SLICE_S / sample_s)) if sample_s > 0 else 1000


def rounds_for(seconds: float, sample_s: float, samples: int) -> int:
    """Rounds (an even number) in which each side is timed for about so many seconds."""
    wanted = seconds / max(2 * samples * sample_s, 1e-9)
    even = 2 * round(wanted / 2)
    return min(MOST_ROUNDS, max(LEAST_ROUNDS, even))
