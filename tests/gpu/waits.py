"""Does the timed loop wait for the device? Three clocks over the same calls, as one line of JSON.

    python waits.py        with matrix_adapters on the path and a CUDA device

`timed_ms` is what a launch would report (the adapter's own runner in the worker's own loop),
`device_ms` what CUDA's events say the kernels took, `planted_ms` what the same loop reports
with a `sync` that does nothing. An honest clock shows at least the second, and the third shows
that one that does not wait would be found out.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import torch

from matrix_adapters import clock
from matrix_adapters.protocol import ModelSpec, Task, TaskKind
from matrix_adapters.pytorch import Adapter, PyTorchRunner

WIDTH, ROWS, LAYERS, CALLS = 4096, 256, 300, 9


class Deep(torch.nn.Module):
    """One matrix, over and over: many launches, each far shorter than its kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)
        self.events: list[tuple[Any, Any]] = []

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(LAYERS):
            x = x @ self.weight
        last.record()
        self.events.append((first, last))
        return (x[:, :8].contiguous(),)


class Impatient(PyTorchRunner):
    """The planted fault."""

    def sync(self) -> None:
        """Does not wait."""

    def fetch(self, outputs: Any) -> dict[str, np.ndarray]:
        return {}


def main() -> None:
    task = Task(kind=TaskKind.MEASURE, framework="pytorch", adapter="matrix_adapters.pytorch", device="cuda")
    adapter = Adapter(task)
    adapter.start()
    module = Deep().to(adapter._device)
    spec = ModelSpec(name="deep", format="none", task="none", inputs=("x",), outputs=("y",))
    feed = {"x": np.random.default_rng(0).standard_normal((ROWS, WIDTH), dtype=np.float32)}
    timed, planted = ([], [])
    for kind, into in ((PyTorchRunner, timed), (Impatient, planted)):
        runner = kind(adapter, module, spec, torch.float32, compiled=False)
        loop = clock.loop_of(runner)
        for _ in range(CALLS + 1):
            begin = time.perf_counter_ns()
            loop(feed, 1)
            into.append((time.perf_counter_ns() - begin) / 1e6)
            torch.cuda.synchronize()
        if into is timed:
            device = [first.elapsed_time(last) for first, last in module.events]
    answer = {"timed_ms": timed, "device_ms": device, "planted_ms": planted}
    # the first call of each compiles and allocates
    json.dump({name: statistics.median(values[1:]) for name, values in answer.items()}, sys.stdout)


main()
