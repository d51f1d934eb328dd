"""A whole sweep in miniature: real worker processes, a toy framework, models of four numbers.

`python toy_sweep.py FOLDER` runs (or resumes) the sweep that a test described in
FOLDER/toy.json, so that a test can kill the orchestrator itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from matrix import catalog as shipped
from matrix.arms import Arm, ab_plan
from matrix.catalog.types import Build, Catalog, Framework, Hardware, HardwareSupport, ModelEntry
from matrix.config.sweep import FrameworkChoice, MeasureChoice, SweepConfig
from matrix.consolidate.stored import records_of
from matrix.environments.base import BuildFailed
from matrix.estimate import Estimate
from matrix.execution.dispatch import run_task as run_anywhere
from matrix.plan import Plan
from matrix.records import Cell, Environment, Workload
from matrix.store.runs import RunStore, StoredRun
from matrix.sweep.launching import RunTask
from matrix.sweep.observer import Observer
from matrix.sweep.outcome import SweepOutcome
from matrix.sweep.run import Schedule, run_sweep
from matrix.sweep.session import new_header
from matrix_adapters import protocol
from matrix_adapters.protocol import Flag, ModelSpec, Reason, State

#: what each model does in each framework is its name: "good", "wrong", "crash", ...
ADAPTER = """
import ctypes, os, signal, sys, time
import numpy as np
from matrix_adapters.adapter import Unavailable, Unsupported

class Adapter:
    name = "toy"
    environment = {}
    def __init__(self, task):
        self.task = task
        self.does = task.model.name.split("_")[0] if task.model else "good"
        where = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(where, "started.txt"), "a") as journal:
            journal.write(f"{task.framework} {task.model.name} {task.kind} {os.getpid()}\\n")
        self.flag = os.path.join(where, "healed")
    def start(self):
        if self.does == "unavailable":
            raise Unavailable("cuda asked, only cpu is seen")
    def probe(self): return {"version": "1.0"}
    def load(self, model, artefacts):
        if self.does == "unsupported":
            raise Unsupported("no kernel for it")
        if self.does == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.does == "exit":
            os._exit(7)
        if self.does == "hang" and not os.path.exists(self.flag):
            time.sleep(600)
        if self.does == "full":
            raise OSError(28, "No space left on device", "/somewhere")
        return Runner(self.task, self.does)

class Runner:
    def __init__(self, task, does): self.task, self.does = task, does
    def prepare(self, feed): return dict(feed)
    def compile(self, feed): return False
    def run(self, feed):
        y = feed["x"] * np.float32(2)
        if self.does == "wrong": y = y + np.float32(1)
        if self.does == "nan": y = y * np.float32("nan")
        return y
    def sync(self): pass
    def fetch(self, outputs): return {"y": outputs}
    def effective(self):
        return {"device": "cpu", "threads": self.task.threads, "precision": "fp32", "math_mode": "fp32"}
    def close(self): pass
"""
X = np.arange(1, 5, dtype=np.float32)


@dataclasses.dataclass
class Built:
    """What a backend returns, for a worker that runs in the interpreter of the tests."""

    environment: Environment
    bundle: Path
    key: str = "toy"
    python_version: str = "3"
    lock: tuple[str, ...] = ("toy==1.0",)
    size_bytes: int | None = 1000
    flags: tuple[Flag, ...] = ()
    seconds: float = 0.0
    reused: bool = True
    notes: tuple[str, ...] = ()
    log: Path | None = None

    def command(self, in_dir: Path, out_dir: Path) -> list[str]:
        return [sys.executable, "-P", "-m", "matrix_adapters.worker", str(in_dir), str(out_dir)]

    def environ(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.bundle)}


class ToyBackend:
    """Builds at once; versions called "broken" and "too-large" cannot be built."""

    name = "host"

    def __init__(self, bundle: Path) -> None:
        self.bundle = bundle
        self.built: list[str] = []

    def session(self, run: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def build(self, environment: Environment, **_: Any) -> Built:
        self.built.append(environment.name)
        if environment.version == "broken":
            raise BuildFailed(Reason(code="no_wheel", text="there is no wheel of toy broken"))
        if environment.version == "too-large":
            raise BuildFailed(Reason(code="disk_full", text="disk full at /cache"))
        return Built(environment=environment, bundle=self.bundle)


@dataclasses.dataclass
class ToyArtefacts:
    paths: Mapping[str, Path]
    hashes: Mapping[str, str]
    spec: ModelSpec
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class ArtefactFailed(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


class ToyPreparer:
    """Inputs and the reference of y = 2x; "unmade..." cannot be made, "unjudged..." have no reference."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, model: ModelEntry, workload: Workload, needs: set[str], run: Any) -> ToyArtefacts:
        if model.name.startswith("unmade"):
            raise ArtefactFailed(Reason(code="export", text="the exporter gave up"))
        folder = self.folder / model.name
        if not folder.exists():
            folder.mkdir(parents=True)
            y = (X * 2).astype(np.float32)
            np.savez(folder / "inputs.npz", x=X)
            np.savez(folder / "float64.npz", y=y.astype(np.float64))
            np.savez(folder / "float32.npz", y=y)
            np.savez(folder / "float32_again.npz", y=y)
            (folder / "reference.json").write_text('{"framework": "toy", "version": "1.0"}')
        paths = {"checkpoint": folder, "inputs": folder / "inputs.npz"}
        if not model.name.startswith("unjudged"):
            paths["reference"] = folder
        return ToyArtefacts(
            paths=paths,
            hashes={"weights": "w" * 64, "inputs": "i" * 64},
            spec=model.spec(),
            facts={"reference": {"missing": "numerics were not checked: nothing can evaluate it"}},
        )

    def prepare_operators(self, cases: Any, run: Any, *, ended: Any, cancel: Any) -> dict[Any, Any]:
        """Sweeps of models have none."""
        assert not cases
        return {}


class ToySweep:
    """A sweep of toy frameworks x models in `folder`, which can be run again to resume it."""

    def __init__(
        self,
        folder: Path,
        *,
        models: Sequence[str],
        frameworks: Sequence[str] = ("toy",),
        versions: Sequence[str] = ("1.0",),
        launches: int = 2,
        timeout_s: float = 60,
        results: Path | None = None,
        cells: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.folder = folder
        self.bundle = folder / "bundle"
        self.results = results or folder / "results"
        self.described = {
            "models": list(models),
            "frameworks": list(frameworks),
            "versions": list(versions),
            "launches": launches,
            "timeout_s": timeout_s,
            "results": str(self.results),
            "cells": dict(cells or {}),
        }
        if not self.bundle.exists():
            self.bundle.mkdir(parents=True)
            source = Path(protocol.__file__).parent
            (self.bundle / "matrix_adapters").symlink_to(source, target_is_directory=True)
            (self.bundle / "toy_adapter.py").write_text(ADAPTER)
            (folder / "toy.json").write_text(json.dumps(self.described))
        self.catalog = _catalog(frameworks, models)
        self.config = SweepConfig(
            name="toy",
            frameworks=tuple(FrameworkChoice(name=name) for name in frameworks),
            models=tuple(self.catalog.models[name] for name in models),
            measure=MeasureChoice(
                launches=launches, samples=5, max_steady_s=0.5, warmup_calls=1, max_warmup_s=0.1
            ),
            timeout_s=timeout_s,
            seed=1,
        )
        extra = cells or {}
        self.cells = tuple(
            Cell(
                environment=Environment(framework=framework, version=version, hardware="cpu", build="cpu"),
                workload=Workload(
                    level="inference",
                    subject=model,
                    batch=1,
                    sequence=None,
                    precision="fp32",
                    threads=1,
                    variant="",
                ),
                **extra.get(model, {}),
            )
            for model in models
            for framework in frameworks
            for version in versions
        )
        self.backend = ToyBackend(self.bundle)
        self.comparison: Mapping[str, Any] = {}

    def compare(self, old: str, new: str) -> None:
        """Make it an A/B run of two versions: both arms of every cell, and what belongs to them."""
        environments = tuple(dict.fromkeys(cell.environment for cell in self.cells))
        plan = Plan(sweep="toy", cells=self.cells, models={}, environments=environments, estimate=Estimate())
        arms = ab_plan(plan, Arm(version=old), [Arm(version=new)], seed=self.config.seed)
        self.cells, self.comparison = arms.cells, arms.comparison

    @classmethod
    def described_in(cls, folder: Path) -> ToySweep:
        data = json.loads((folder / "toy.json").read_text())
        results = Path(data.pop("results"))
        return cls(folder, results=results, **data)

    def new_store(self) -> RunStore:
        header = new_header(
            self.config, backend="host", backend_why="a test asked for it", machine={"cpu": "toy"}
        ).model_copy(update={"comparison": self.comparison})
        return RunStore.create(self.results, header, self.cells)

    def run(
        self,
        *,
        store: RunStore | None = None,
        observer: Observer | None = None,
        budget_s: float | None = None,
        run_task: RunTask = run_anywhere,
        preparer: Any = None,
        schedule: Schedule | None = None,
    ) -> SweepOutcome:
        with store or self.new_store() as open_store:
            return run_sweep(
                self.config,
                self.catalog,
                store=open_store,
                backend=self.backend,  # type: ignore[arg-type]
                artefacts=lambda _: preparer or ToyPreparer(self.folder / "artefacts"),
                observer=observer,
                budget_s=budget_s,
                run_task=run_task,
                schedule=schedule,
            )

    def resume(self, **options: Any) -> SweepOutcome:
        """Go on with the one run there is."""
        (run,) = [path.parent for path in self.results.glob("*/run.json")]
        return self.run(store=RunStore.open(run), **options)

    def stored(self) -> StoredRun:
        (run,) = [path.parent for path in self.results.glob("*/run.json")]
        return StoredRun(run)

    def states(self) -> dict[str, State]:
        """State by model (for one framework); asserts that every planned cell is reported once."""
        records = records_of(self.stored())
        assert [record.id for record in records] == [cell.id for cell in self.cells]
        return {record.workload.subject: record.state for record in records}

    def started(self) -> list[str]:
        """One line for each worker that came as far as its adapter."""
        journal = self.bundle / "started.txt"
        return journal.read_text().splitlines() if journal.exists() else []


def _catalog(frameworks: Sequence[str], models: Sequence[str]) -> Catalog:
    real = shipped.load()
    toys = {
        name: Framework(
            name=name,
            title=name,
            adapter="toy_adapter",
            import_package="toy",
            provided_by=["toy"],
            consumes="checkpoint",
            default_version="1.0",
            hardware={"cpu": HardwareSupport(build="cpu", device="cpu", precisions=["fp32"])},
            builds={"cpu": Build(versions=["1.0"], steps=[{"install": ["toy"]}])},  # type: ignore[list-item]
        )
        for name in frameworks
    }
    entries = {
        name: ModelEntry(name=name, format="declarative", task="toy", outputs=["y"]) for name in models
    }
    return Catalog(
        frameworks=toys,
        hardware={"cpu": Hardware(name="cpu", title="CPU", always=True)},
        models=entries,
        metrics=real.metrics,
        tolerances=real.tolerances,
        sweeps={},
    )


def _main(folder: Path) -> int:
    sweep = ToySweep.described_in(folder)
    outcome = sweep.resume() if list(sweep.results.glob("*/run.json")) else sweep.run()
    return int(outcome.exit_code)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
