"""What an adapter is. Every adapter module defines `Adapter` and a runner, in this order.

An adapter knows how its framework is told about devices, threads and precision,
how it loads an artefact, how one call is made and how the device is synchronised.
It measures nothing and judges nothing: the worker owns the clock.

Rules that every adapter obeys:

* The framework is imported in `start`, never at the top of the module, so that the
  import is a timed phase and the module can be read without the framework.
* What was asked is set, then read back: `effective` reports what the framework
  says, not what it was told. A request that was silently not met raises
  `Unavailable`.
* `run` takes host arrays and may return before the device is done; `sync` waits.
* `fetch` returns NumPy arrays in the layout and dtype of the shared reference
  (bfloat16 results are widened to float32, and `effective` says so).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from matrix_adapters.protocol import ModelSpec, Task

Feed = Mapping[str, np.ndarray]


class Unsupported(Exception):
    """This framework cannot do what the task asks, on any machine: say what is missing."""


class Unavailable(Exception):
    """It could be done, but not here: say what the framework saw instead."""


class Adapter(Protocol):
    """One framework in one process. `__init__` takes the task and imports nothing."""

    name: str
    #: environment variables that must be set before the framework is imported
    environment: Mapping[str, str]

    def start(self) -> None:
        """Import the framework and set threads, device and math mode.

        Raises Unavailable when the framework does not see the device asked for.
        """

    def probe(self) -> dict[str, Any]:
        """What the framework really sees: version, build, devices, providers, threads, math modes."""

    def load(self, model: ModelSpec, artefacts: Mapping[str, Path]) -> Runner:
        """Load weights; no work that depends on the input shapes.

        Raises Unsupported for a precision, task or format this framework has no way to run.
        """


class Runner(Protocol):
    """One loaded model, ready to be called with feeds of one shape.

    Optional, where a runner has it:

    * `synchronous = True`: `run` returns only when the result is there, so the loop
      need not call `sync` (which must exist all the same);
    * `peak_device_memory() -> int | None`: the most bytes of device memory held so far,
      None where the device is the host;
    * a list `flags` of `{"code", "text"}` in `effective()`: what the adapter itself
      distrusts, carried to the cell.
    """

    def prepare(self, feed: Feed) -> Feed:
        """Host arrays as this framework wants them (names, layout, dtype). Outside the timed region."""

    def compile(self, feed: Feed) -> bool:
        """Trace, build or optimise for these shapes. False: this variant has no such step."""

    def run(self, feed: Feed) -> Any:
        """One call, host arrays in, native outputs out. May return before the device is done."""

    def sync(self) -> None:
        """Wait until everything that `run` started is done."""

    def fetch(self, outputs: Any) -> dict[str, np.ndarray]:
        """Native outputs as host arrays, by the model's output names."""

    def effective(self) -> dict[str, Any]:
        """What was really used: device, threads, precision, math_mode, layout, providers, notes."""

    def close(self) -> None:
        """Release what the framework holds."""


def make(task: Task) -> Adapter:
    """The adapter that `task.adapter` names. Raises ImportError when there is no such module."""
    import importlib

    module = importlib.import_module(task.adapter)
    adapter: Adapter = module.Adapter(task)
    return adapter
