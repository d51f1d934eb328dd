"""Noise with a known truth: logarithms of one number a process, for many cells at once.

Every kind is made as live pairs make it. A block has one fresh process of each side; each has
its own random level (memory layout, hash seeds); the two take turns in slices whose order is a
coin flip, on a machine whose speed changes while they do; a process's number is the median of
its samples. So what pairing cancels is cancelled here, and what it does not is not.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

Floats = npt.NDArray[np.float64]

KINDS = ("normal", "heavy tails", "drift", "bimodal", "autocorrelated")
#: standard deviation of a block's log ratio: lognormal over cells
TYPICAL_SD, SPREAD = 0.015, 0.7
ROUNDS, SAMPLES = 4, 4  # of a block; samples kept of a slice


@dataclasses.dataclass(frozen=True)
class Logs:
    """Log times, float64[cells, blocks] each."""

    base: Floats
    candidate: Floats


def draw(kind: str, cells: int, blocks: int, rng: np.random.Generator, *, sd: float | None = None) -> Logs:
    """Nothing is planted. `sd`: the same for every cell; else lognormal around 1.5 %."""
    scale = np.full(cells, sd) if sd else TYPICAL_SD * np.exp(SPREAD * rng.standard_normal(cells))
    process = scale[:, None, None] / np.sqrt(2)
    shape = (cells, blocks, 2)
    level = rng.normal(1.0, 1.0, (cells, 1, 1))  # every cell has its own time
    if kind == "normal":
        logs = process * rng.standard_normal(shape)
    elif kind == "heavy tails":
        logs = process * rng.standard_t(3, shape) / np.sqrt(3)
    elif kind == "bimodal":
        slow = rng.random(shape) < rng.uniform(0.05, 0.5, (cells, 1, 1))
        logs = process * (0.5 * rng.standard_normal(shape) + 2.0 * slow)
    elif kind == "drift":
        logs = 0.5 * process * rng.standard_normal(shape) + _turns(scale, cells, blocks, rng, memory=1.0)
    elif kind == "autocorrelated":
        logs = 0.5 * process * rng.standard_normal(shape) + _turns(scale, cells, blocks, rng, memory=0.95)
    else:
        raise ValueError(kind)
    logs = logs + level
    return Logs(logs[:, :, 0], logs[:, :, 1])


def _turns(scale: Floats, cells: int, blocks: int, rng: np.random.Generator, *, memory: float) -> Floats:
    """What a machine with a memory does to medians of slices in coin-flipped ABBA order.

    Its speed is a random walk (memory 1) or forgets (below 1) from sample to sample, and goes on
    from block to block. float64[cells, blocks, 2].
    """
    slots = ROUNDS * 4 * SAMPLES
    steps = rng.standard_normal((cells, blocks * slots)) * (0.35 if memory == 1.0 else 0.6)
    speed = scale[:, None] * lfilter([1.0], [1.0, -memory], steps, axis=1)
    samples = speed.reshape(cells, blocks, ROUNDS, 4, SAMPLES)
    first = rng.random((cells, blocks, ROUNDS)) < 0.5
    outer, inner = samples[:, :, :, [0, 3]], samples[:, :, :, [1, 2]]
    a = np.where(first[..., None, None], outer, inner).reshape(cells, blocks, -1)
    b = np.where(first[..., None, None], inner, outer).reshape(cells, blocks, -1)
    return np.stack([np.median(a, axis=2), np.median(b, axis=2)], axis=2)
