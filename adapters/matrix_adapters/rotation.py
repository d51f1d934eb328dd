"""Which inputs the timed calls get: the same every time, or copies that no cache holds all of.

`warm`: the data of a call is where the call before left it. `rotating`: every call gets the next of so
many copies that all of them together are twice what the last cache holds, so that none is there any
more when its turn comes again. What is part of the model (weights, constants) does not rotate.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from matrix_adapters import caches, checks, clock, tensors
from matrix_adapters.adapter import Feed, Runner
from matrix_adapters.launch import Launch
from matrix_adapters.protocol import TensorFacts

WARM, ROTATING = "warm", "rotating"
POLICIES = (WARM, ROTATING)
#: the working set over the last cache
FACTOR = 2
#: small inputs: their objects alone would outgrow any cache
MOST_COPIES = 4096

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotation:
    """The loop to be timed, the feeds that it rotates through, and what the record says of them."""

    loop: clock.Loop
    feeds: tuple[Feed, ...] = ()  # none where the policy is `warm`
    told: dict[str, Any] = dataclasses.field(default_factory=dict)

    def check(self, facts: dict[str, TensorFacts]) -> None:
        """Raises Measured when a call wrote into one of the feeds; `facts` are those of all of them."""
        for feed in self.feeds:
            checks.inputs_unchanged(facts, tensors.fingerprints(feed))


def begin(policy: str, runner: Runner, inputs: Arrays, launch: Launch) -> Rotation:
    """How this launch calls its runner. Raises ValueError for a policy that does not exist.

    A working set that stays below the last cache (too many copies, no inputs) is flagged.
    """
    if policy not in POLICIES:
        raise ValueError(f"no cache policy {policy!r}: use {' or '.join(POLICIES)}")
    if policy == WARM:
        return Rotation(loop=clock.loop_of(runner))
    size = sum(array.nbytes for array in inputs.values())
    found = caches.read()
    count = copies_needed(size, found.last)
    feeds = tuple(runner.prepare(_copied(inputs)) for _ in range(count))
    if size * count <= found.last:
        text = f"{count} copies of {size} bytes rotate: less than the last cache's {found.last} bytes"
        launch.flag("cache_not_exceeded", text)
    told = {
        "cache": f"rotating: inputs from a working set of {FACTOR} x the last cache",
        "cache_copies": count,
        "cache_working_set_bytes": size * count,
        "cache_last_level_bytes": found.last,
    }
    return Rotation(loop=clock.rotating_loop_of(runner, feeds), feeds=feeds, told=told)


def copies_needed(size: int, last: int) -> int:
    """Copies of `size` bytes whose sum is `FACTOR` times `last`, and at least 2; at most MOST_COPIES."""
    if size <= 0:
        return 1
    return min(MOST_COPIES, max(2, -(-FACTOR * last // size)))


def _copied(inputs: Arrays) -> Arrays:
    """In memory of its own, with the strides that each array has."""
    return {name: np.array(array, order="K", copy=True) for name, array in inputs.items()}
