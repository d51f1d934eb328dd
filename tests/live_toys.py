"""Halves of live pairs for tests: real worker processes of a toy adapter, small enough to read."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters import protocol, tensors
from matrix_adapters.protocol import Measure, Task, TaskKind

ADAPTERS = Path(protocol.__file__).parents[1]

TOY = """
import os, signal, subprocess, sys, threading, time
import numpy as np

class BaseAdapter:
    name = "toy"
    environment = {}
    def __init__(self, task): self.task = task
    def start(self): pass
    def probe(self): return {"version": "1.2"}
    def load(self, model, artefacts): return Runner(self.task)

class BaseRunner:
    def __init__(self, task): self.task, self.calls = task, 0
    def prepare(self, feed): return feed
    def compile(self, feed): return False
    def run(self, feed):
        self.calls += 1
        self.work()
        return feed["x"] * 2
    def work(self): time.sleep(0.001)
    def sync(self): pass
    def fetch(self, outputs): return {"y": outputs}
    def effective(self):
        return {"device": "cpu", "threads": self.task.threads, "precision": "fp32", "math_mode": "fp32"}
    def close(self): pass

class Adapter(BaseAdapter): pass
class Runner(BaseRunner): pass
"""
#: 1 first call, 3 of warm-up, then samples of one call: the toy's 5th call is the first sample's
FROZEN = {"warmup_calls": 3, "calls": 1}


class ToyHalf:
    """A stand-in for a built environment that holds one toy adapter (the plain one plus `change`)."""

    def __init__(self, folder: Path, change: str = "", **variables: str) -> None:
        self.folder = folder
        (folder / "toys").mkdir(parents=True)
        (folder / "toys/toy.py").write_text(TOY + textwrap.dedent(change))
        tensors.save(folder / "inputs.npz", {"x": np.arange(4, dtype=np.float32)})
        self._variables = variables

    def command(self, in_dir: Path, out_dir: Path) -> list[str]:
        return [sys.executable, "-P", "-m", "matrix_adapters.worker", str(in_dir), str(out_dir)]

    def environ(self) -> dict[str, str]:
        path = os.pathsep.join([str(ADAPTERS), str(self.folder / "toys")])
        return {**os.environ, "PYTHONPATH": path, **self._variables}

    def task(self, options: dict[str, Any] | None = None, **fields: Any) -> Task:
        values: dict[str, Any] = {
            "kind": TaskKind.SLICES,
            "framework": "toy",
            "adapter": "toy",
            "inputs": str(self.folder / "inputs.npz"),
            "measure": Measure(min_samples=3),
            "options": FROZEN if options is None else options,
        }
        return Task(**(values | fields))
