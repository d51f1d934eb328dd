"""A third-party framework in as many versions as a test wants, slowed exactly where the test plants it.

`build(folder, {"1.0": {}, "1.1": {"medium": ("spin", 0.05)}})` writes one wheel a version into
a folder of `folder` and, into `folder/site`, the adapter's distribution as an installer leaves it. A command
that runs with `toys.environ()` finds both, as if a user had installed them.

The framework computes x @ x, over and over: COUNTS says how often in one call of which model, so that
5 % more work is 5 % more products whatever machine it runs on. A plan names a model (or "*" for all)
and what a version does there:

* `("spin", 0.05)`    5 % more products: more time and more CPU time (negative: fewer)
* `("sleep", 0.05)`   sleeps for 5 % of what the call took: more time, the same CPU time
* `("load", 0.5)`     half a second more to load
* `("memory", 50)`    holds 50 MiB more
* `("wrong", 1.0)`    adds 1 to every value
* `("crash", 1)`      raises
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx_graphs import model, node, value, write
from tiny_wheels import make_wheel

from matrix import paths
from matrix.environments import clean
from matrix_adapters.protocol import content_hash

#: products of two 128 x 128 matrices in one call; `medium` takes 20 ms and more on cores of today
COUNTS = {"tiny": 10, "short": 40, "medium": 500, "long": 1000}
SIDE = 128

Plan = Mapping[str, tuple[str, float]]

_FRAMEWORK = '''"""A framework that multiplies matrices."""

import importlib.util
import time

import numpy as np

__version__ = {version!r}
PLAN = {plan!r}
COUNTS = {counts!r}

if importlib.util.find_spec("toykernels"):
    from toykernels import PLAN as KERNELS
else:
    KERNELS = {{}}


def planned(name):
    """What this version and its kernels do with a model, beyond computing it."""
    return [plan.get(name) or plan.get("*") or ("", 0.0) for plan in (PLAN, KERNELS)]


class Model:
    """One loaded model."""

    def __init__(self, name, factor):
        self.plan = planned(name)
        share = sum(amount for kind, amount in self.plan if kind == "spin")
        self.count = round(COUNTS[name] * factor * (1 + share))
        self.nap = sum(amount for kind, amount in self.plan if kind == "sleep")
        self.bias = np.float32(sum(amount for kind, amount in self.plan if kind == "wrong"))
        time.sleep(sum(amount for kind, amount in self.plan if kind == "load"))
        held = sum(amount for kind, amount in self.plan if kind == "memory")
        self.held = np.ones(int(held * (1 << 17)))
        self.crashes = any(kind == "crash" for kind, _ in self.plan)

    def __call__(self, x):
        if self.crashes:
            raise RuntimeError("planted")
        began = time.perf_counter()
        for _ in range(self.count):
            y = x @ x
        if self.nap:
            time.sleep(self.nap * (time.perf_counter() - began))
        return y + self.bias
'''

_KERNELS = '''"""What the toy framework computes with."""

__version__ = {version!r}
PLAN = {plan!r}
'''

_ADAPTER = '''"""Runs the toy framework."""

from types import MappingProxyType

from matrix_adapters.adapter import Unsupported


class Adapter:
    name = "toyframe"
    environment = MappingProxyType({"TOYFRAME_HOME": "/nowhere"})

    def __init__(self, task):
        self._task = task

    def start(self):
        import toyframe

        self._toyframe = toyframe

    def probe(self):
        return {"version": self._toyframe.__version__}

    def load(self, model, artefacts):
        if model.name not in self._toyframe.COUNTS:
            raise Unsupported(f"toyframe has no model {model.name}")
        factor = 2 if self._task.variant == "double" else 1
        return Runner(self._toyframe.Model(model.name, factor), self._task)


class Runner:
    synchronous = True

    def __init__(self, model, task):
        self._model, self._task = model, task

    def prepare(self, feed):
        return {"x": feed["x"][0].copy()}

    def compile(self, feed):
        return False

    def run(self, feed):
        return self._model(feed["x"])

    def sync(self):
        """Nothing is left running."""

    def fetch(self, outputs):
        return {"y": outputs[None]}

    def effective(self):
        return {
            "device": "cpu",
            "threads": self._task.threads,
            "precision": "fp32",
            "math_mode": "fp32",
            "layout": "as given",
        }

    def close(self):
        """Nothing is held."""
'''

_ENTRY = """name: toyframe
title: Toyframe
adapter: matrix_toyframe.adapter
import_package: toyframe
provided_by: [toyframe]
consumes: onnx
default_version: "{default}"
default_variant: plain
variants:
  plain: each product once
  double: each product twice
hardware:
  cpu: {{build: cpu, device: cpu, precisions: [fp32]}}
builds:
  cpu:
    versions: ["{default}"]
    steps:
      - {{install: ["toyframe=={{version}}", numpy], links: "{links}"}}
    cost: {{build_s: 5, disk_mb: 90, launch_s: 0.5}}
"""


@dataclasses.dataclass(frozen=True)
class Toys:
    """What `build` made."""

    links: Path  # wheels: for pip's find-links
    site: Path  # the adapter's distribution: for PYTHONPATH of `matrix` itself

    def environ(self) -> dict[str, str]:
        """This process's variables, and the two that make a command find the toys and its own interpreter."""
        links = [str(self.links), *os.environ.get("PIP_FIND_LINKS", "").split()]
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.site),
            "PIP_FIND_LINKS": " ".join(links),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "COLUMNS": "110",
        }

    def wheel(self, version: str, name: str = "toyframe") -> Path:
        """The wheel of one version."""
        return self.links / f"{name}-{version}-py3-none-any.whl"

    def sweep(self, folder: Path, models: Sequence[str] = ("short", "medium"), extra: str = "") -> Path:
        """A sweep of these models in `folder`, and their ONNX files; `extra`: more YAML at the top level."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["name: toys", "hardware: [cpu]", "frameworks: [toyframe]", "models:"]
        for name in models:
            shape = ["batch", SIDE, SIDE]
            graph = model([node("MatMul", ["x", "x"], ["y"])], [value("x", shape)], [value("y", shape)])
            write(folder, graph, f"{name}.onnx")
            lines.append(f"  - {{name: {name}, path: {name}.onnx}}")
        path = folder / "toys.yaml"
        path.write_text("\n".join([*lines, extra, ""]), encoding="utf-8")
        return path


def build(
    folder: Path,
    versions: Mapping[str, Plan],
    *,
    dependency: Mapping[str, Plan] | None = None,
    requires: Mapping[str, Sequence[str]] | None = None,
) -> Toys:
    """Wheels of `toyframe` in these versions, and of `toykernels` in those of `dependency`.

    `requires`: version of toyframe -> requirements of its wheel (`{"1.2": ["toykernels==1.1"]}`); where
    there is a dependency, a version that says nothing requires any `toykernels`.
    """
    # Environments are known by their instructions: the same version of another test is another folder.
    key = content_hash([versions, dependency or {}, requires or {}])
    links, site = folder / f"links-{key}", folder / "site"
    for version, plan in versions.items():
        text = _FRAMEWORK.format(version=version, plan=dict(plan), counts=COUNTS)
        needs = (requires or {}).get(version, ["toykernels"] if dependency else [])
        make_wheel(links, "toyframe", version, requires=needs, files={"toyframe/__init__.py": text})
    for version, plan in (dependency or {}).items():
        text = _KERNELS.format(version=version, plan=dict(plan))
        make_wheel(links, "toykernels", version, files={"toykernels/__init__.py": text})
    default = next(iter(versions))
    info = "matrix_toyframe-1.0.dist-info"
    _write(
        site,
        {
            "matrix_toyframe/__init__.py": '"""Toyframe for Framework Matrix."""\n',
            "matrix_toyframe/adapter.py": _ADAPTER,
            "matrix_toyframe/framework.yaml": _ENTRY.format(default=default, links=links),
            f"{info}/METADATA": "Metadata-Version: 2.1\nName: matrix-toyframe\nVersion: 1.0\n",
            f"{info}/entry_points.txt": "[framework_matrix.adapters]\ntoyframe = matrix_toyframe\n",
        },
    )
    return Toys(links=links, site=site)


def forget() -> None:
    """Remove the environments of all toy versions from the cache: each test makes its own, used once."""
    clean.remove(clean.choose(clean.contents(paths.home()), framework="toyframe"))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
