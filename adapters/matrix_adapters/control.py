"""A fixed piece of work that no framework takes part in: when it moves, the machine moved.

Every block of an A/B run times it in both environments. It has a share of arithmetic
(matrix products in the first-level cache) and a share of memory traffic (sums over an
array that no second-level cache holds), so that a lower clock and a busy memory both show.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from matrix_adapters.adapter import Feed
from matrix_adapters.null import SynchronousNullRunner
from matrix_adapters.protocol import ModelSpec, Task

_PRODUCTS = 40  # of 64 x 64 float64: about 1 ms
_BYTES = 8 << 20


class Adapter:
    """NumPy alone, which every environment has."""

    name = "control"
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(self, task: Task) -> None:
        self._task = task

    def start(self) -> None:
        """Nothing to import."""

    def probe(self) -> dict[str, Any]:
        return {"version": np.__version__}

    def load(self, model: ModelSpec, artefacts: Mapping[str, Path]) -> ControlRunner:
        del model, artefacts
        return ControlRunner(self._task)


class ControlRunner(SynchronousNullRunner):
    """The same work in every call."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        random = np.random.default_rng(0)
        self._matrix = random.standard_normal((64, 64))
        self._memory = random.standard_normal(_BYTES // 8)

    def run(self, feed: Feed) -> Any:
        del feed
        product = self._matrix
        for _ in range(_PRODUCTS):
            product = product @ self._matrix
            product *= 0.1  # stays finite
        return {"work": np.array([product[0, 0], self._memory.sum()])}
