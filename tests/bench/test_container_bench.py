"""What a launch in a container costs beside the engine's own `docker run --rm` of the same image.

Create to removed, a worker that does nothing, interleaved, median of 20. With archives in and out, against a
`docker run` that starts Python too: at most 0.35 s more, of which a second Python, the supervisor, is part.
Without archives, `/bin/true` against `/bin/true`: at most 0.15 s more.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker.types
import private_engine
import pytest
from private_engine import PrivateEngine, an_engine

from matrix.execution.box import Box
from matrix.execution.container import Plan, _placed
from matrix.execution.container_plan import environ
from matrix.execution.engine import Engine
from matrix.execution.volumes import Volumes
from matrix_adapters import supervisor
from matrix_adapters.protocol import Task, TaskKind

ROUNDS = 20
WITH_ARCHIVES_S, WITHOUT_S = 0.35, 0.15
PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    with an_engine(Path(tempfile.mkdtemp(prefix="fmx-bench-"))) as private:
        yield private


def test_a_launch_costs_little_more_than_the_engines_own(
    engine: PrivateEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str], benchmark: Any
) -> None:
    task = Task(kind=TaskKind.MEASURE, framework="null", adapter="matrix_adapters.null")
    with engine.client() as client:
        ours = Engine(client)
        image = str(client.images.get(private_engine.BASE_TAG).id)
        # The worker of this bench is a Python that starts and ends; the supervisor is the real one.
        plan = Plan(image=image, python=PYTHON, worker=_idle_worker(tmp_path), memory_bytes=256 << 20)
        bare = dataclasses.replace(plan, python="/bin/true")
        mounts, inner = _placed(task, plan, Volumes(ours, tmp_path, "bench"))
        out = tmp_path / "out"
        ways: dict[str, Callable[[], None]] = {
            "docker run, true": lambda: _docker_run(engine, plan, "/bin/true"),
            "ours, true, without archives": lambda: _launch(ours, bare, mounts, inner, task),
            "docker run, Python": lambda: _docker_run(engine, plan, PYTHON, "-P", "-c", "pass"),
            "ours, Python, with archives": lambda: _launch(ours, plan, mounts, inner, task, out),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(1 if benchmark.disabled else ROUNDS):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - began)
        assert json.loads((out / "seen.json").read_text()) == "the worker was here"
        benchmark.pedantic(ways["ours, Python, with archives"], rounds=1)
    median = {name: statistics.median(values) for name, values in times.items()}
    benchmark.extra_info.update(median)
    if benchmark.disabled:  # one round among other tests judges nothing
        return
    without = median["ours, true, without archives"] - median["docker run, true"]
    with_archives = median["ours, Python, with archives"] - median["docker run, Python"]
    with capsys.disabled():
        print()
        for name, seconds in median.items():
            low, _, high = statistics.quantiles(times[name], n=4)
            print(f"{name:30} {seconds * 1e3:5.0f} ms  (quartiles {low * 1e3:.0f} to {high * 1e3:.0f})")
        print(f"over docker run: {with_archives * 1e3:+.0f} ms with archives, of {WITH_ARCHIVES_S * 1e3:.0f}")
        print(f"                 {without * 1e3:+.0f} ms without, of {WITHOUT_S * 1e3:.0f}")
    assert with_archives <= WITH_ARCHIVES_S
    assert without <= WITHOUT_S


def _idle_worker(folder: Path) -> Path:
    """Worker sources whose worker does nothing but say that it was there."""
    package = folder / "idle" / "matrix_adapters"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(supervisor.__file__, package)
    (package / "worker.py").write_text(
        'import sys\nopen(sys.argv[2] + "/seen.json", "w").write(\'"the worker was here"\')\n'
    )
    return package.parent


def _docker_run(engine: PrivateEngine, plan: Plan, *words: str) -> None:
    variables = [word for name, value in environ(plan).items() for word in ("-e", f"{name}={value}")]
    command = ["docker", "-H", engine.url, "run", "--rm", "--network", "none", *variables, plan.image, *words]
    subprocess.run(command, check=True, env={**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}"})


def _launch(
    engine: Engine,
    plan: Plan,
    mounts: list[docker.types.Mount],
    inner: Task,
    task: Task,
    out: Path | None = None,
) -> None:
    """A launch as it is made for a worker, from creation to removal; with archives where `out` is given."""
    with Box(plan, engine, timeout_s=60, cancel=None) as box:
        box.create(mounts, stall_s=60)
        if out is not None:
            out.mkdir(exist_ok=True)
            box.send(inner, task)
        box.start()
        box.until()
        if out is not None:
            box.fetch(out)
