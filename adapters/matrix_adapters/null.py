"""An adapter that does nothing: what it measures is our own loop.

Measured in every run through the very same worker and loop as a real framework, in
any environment that has NumPy. It declares no `synchronous`, so it shows the dearer
of the two loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from matrix_adapters.adapter import Feed
from matrix_adapters.protocol import ModelSpec, Task

_OUTPUTS = {"nothing": np.zeros(1, np.float32)}


class Adapter:
    """No framework: always there, on any device, with any thread count."""

    name = "null"
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(self, task: Task) -> None:
        self._task = task

    def start(self) -> None:
        """Nothing to import."""

    def probe(self) -> dict[str, Any]:
        return {"version": "0"}

    def load(self, model: ModelSpec, artefacts: Mapping[str, Path]) -> NullRunner:
        del model, artefacts
        return NullRunner(self._task)


class NullRunner:
    """Returns the same array, at once, whatever it is fed."""

    def __init__(self, task: Task | None = None) -> None:
        self._task = task

    def prepare(self, feed: Feed) -> Feed:
        return feed

    def compile(self, feed: Feed) -> bool:
        del feed
        return False

    def run(self, feed: Feed) -> Any:
        del feed
        return _OUTPUTS

    def sync(self) -> None:
        """Nothing was started."""

    def fetch(self, outputs: Any) -> dict[str, np.ndarray]:
        return outputs  # type: ignore[no-any-return]

    def effective(self) -> dict[str, Any]:
        task = self._task
        if task is None:
            return {}
        return {
            "device": task.device,
            "threads": task.threads,
            "precision": task.precision,
            "math_mode": task.math_mode,
        }

    def close(self) -> None:
        """Nothing is held."""


class SynchronousNullRunner(NullRunner):
    """The same for the loop without `sync`."""

    synchronous = True
