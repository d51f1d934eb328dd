"""What change this machine can detect, and in which time: the control workload against itself.

Live pairs of the same process, as an A/B run makes them, for about a minute. Their block to
block spread is the noise that every verdict has to see through; from it follows the smallest
slowdown that so many blocks would find in 80 % of cases.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from matrix.environments.base import clean_environ
from matrix.environments.bundle import Bundle
from matrix.execution.cancel import Cancel
from matrix.execution.live import open_live
from matrix.judge import clocks, distributions, paired, parity, spending
from matrix.records import CONTROL
from matrix.sweep.pair import Frozen, Half, rounds_for, run_pair, slice_samples
from matrix_adapters.protocol import SAMPLES_FILE, State, Task, TaskKind

#: the clocks that are told apart, and what each is good for
CLOCKS = ("wall", "wall-clean", "cpu")
_LEAST_BLOCKS = 4
_TIMEOUT_S, _STALL_S = 60.0, 30.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockNoise:
    """One clock's blocks: log ratios of two equal processes."""

    clock: str
    blocks: int
    mean: float  # log ratio; its interval should hold 0
    low: float
    high: float
    spread: float  # standard deviation of a block, log ratio
    detectable: tuple[tuple[int, float, float], ...]  # blocks, smallest slowdown (fraction), seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """What was measured, or why nothing was."""

    seconds: float
    block_s: float | None
    clocks: tuple[ClockNoise, ...]
    problem: str = ""


class _Here:
    """The interpreter this runs in, as an environment that a worker can be started in."""

    def __init__(self, worker_path: Path) -> None:
        self._path = worker_path

    def command(self, in_dir: Path, out_dir: Path) -> list[str]:
        return [sys.executable, "-P", "-m", "matrix_adapters.worker", str(in_dir), str(out_dir)]

    def environ(self) -> dict[str, str]:
        return {**clean_environ(), "PYTHONPATH": str(self._path)}


def measure(
    seconds: float, home: Path, *, cancel: Cancel | None = None, tell: Callable[[str], None] = lambda _: None
) -> Noise:
    """Pairs of the control for about so many seconds; at least four blocks."""
    began, chance = time.monotonic(), random.Random()  # noqa: S311 (order, not secrecy)
    values: dict[str, list[float]] = {name: [] for name in CLOCKS}
    blocks = 0
    frozen: Frozen | None = None
    bundle = Bundle(home)
    try:
        here = _Here(bundle.stage())
        while blocks < _LEAST_BLOCKS or time.monotonic() - began < seconds:
            found = _block(here, frozen, chance, cancel)
            if isinstance(found, str):
                return Noise(seconds=time.monotonic() - began, block_s=None, clocks=(), problem=found)
            sides, sample_s, ready_s = found
            if frozen is None:  # the first pair only says how long things take
                samples = slice_samples(sample_s)
                rounds = rounds_for(ready_s, sample_s, samples)
                frozen = Frozen(warmup_calls=10, calls=1, samples=samples, rounds=rounds)
                measured_from = time.monotonic()
                continue
            blocks += 1
            tell(f"block {blocks}")
            for name in CLOCKS:
                if all(name in side for side in sides):
                    base, candidate = clocks.block_of(sides[0], sides[1], name)
                    values[name].append(math.log(candidate / base))
    finally:
        bundle.close()
    block_s = (time.monotonic() - measured_from) / blocks
    known = tuple(
        _noise(name, values[name], block_s) for name in CLOCKS if len(values[name]) >= _LEAST_BLOCKS
    )
    return Noise(seconds=time.monotonic() - began, block_s=block_s, clocks=known)


def _block(
    here: _Here, frozen: Frozen | None, chance: random.Random, cancel: Cancel | None
) -> tuple[list[dict[str, Any]], float, float] | str:
    """The numbers of both sides by clock, seconds a sample, seconds to start; or what went wrong."""
    options = {"warmup_calls": 10} if frozen is None else frozen.options()
    task = Task(
        kind=TaskKind.SLICES,
        framework=CONTROL,
        adapter="matrix_adapters.control",
        keep_outputs=False,
        options=options,
    )
    with tempfile.TemporaryDirectory(prefix="framework-matrix-noise-") as folder:
        halves = [Half(built=here, task=task, folder=Path(folder) / name) for name in ("a", "b")]
        ended = run_pair(
            halves[0],
            halves[1],
            frozen,
            chance=chance,
            open_live=open_live,
            timeout_s=_TIMEOUT_S,
            stall_s=_STALL_S,
            cancel=cancel,
        )
        for result in ended.results:
            if result.state is not State.OK:
                return result.reason.text if result.reason else str(result.state)
        if ended.sample_s is None:
            return "nothing was timed"
        sides = [clocks.clocks(_samples(half.folder / "out" / SAMPLES_FILE)) for half in halves]
    return sides, ended.sample_s, ended.ready_s


def _samples(path: Path) -> dict[str, clocks.Integers]:
    return {name: np.asarray(array, np.int64) for name, array in parity.load_arrays(path).items()}


def _noise(clock: str, values: Sequence[float], block_s: float) -> ClockNoise:
    mean, variance = paired.moments(values)
    n, spread = len(values), math.sqrt(variance)
    half = float(distributions.t_quantile(1 - paired.TAIL, n - 1)) * spread / math.sqrt(n)
    return ClockNoise(
        clock=clock,
        blocks=n,
        mean=mean,
        low=mean - half,
        high=mean + half,
        spread=spread,
        detectable=tuple((k, _detectable(spread, k), k * block_s) for k in spending.LOOKS),
    )


def _detectable(spread: float, blocks: int) -> float:
    """The slowdown that so many blocks of this spread find in 80 % of cases, a fraction."""
    nu = blocks - 1
    t = float(distributions.t_quantile(1 - paired.TAIL, nu)) + float(
        distributions.t_quantile(paired.POWER, nu)
    )
    return math.expm1(t * spread / math.sqrt(blocks))
