"""What a launch in a container costs beside the engine's own `docker run --rm` of the same image.

Create to removed, a worker that does nothing, interleaved, median of 20: at most 0.35 s more
with archives in and out, 0.15 s without them.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker.types
import private_engine
import pytest
from private_engine import PrivateEngine, an_engine

from matrix.environments.bundle import Bundle
from matrix.execution.box import Box
from matrix.execution.container import Plan, _placed
from matrix.execution.container_plan import environ
from matrix.execution.engine import Engine
from matrix.execution.volumes import Volumes
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
    source = Bundle(tmp_path).stage()
    task = Task(kind=TaskKind.MEASURE, framework="null", adapter="matrix_adapters.null")
    times: dict[str, list[float]] = {"docker run --rm": [], "with archives": [], "without": []}
    with engine.client() as client:
        ours = Engine(client)
        image = str(client.images.get(private_engine.BASE_TAG).id)
        plan = Plan(image=image, python="/bin/true", worker=source, memory_bytes=256 << 20)
        volumes = Volumes(ours, tmp_path, "bench")
        mounts, inner = _placed(task, Plan(image=image, python=PYTHON, worker=source), volumes)
        ways = {
            "docker run --rm": lambda: _docker_run(engine, image, plan),
            "with archives": lambda: _launch(
                ours, plan, mounts, inner, task, tmp_path / "out", archives=True
            ),
            "without": lambda: _launch(ours, plan, mounts, inner, task, tmp_path / "out", archives=False),
        }
        rounds = 1 if benchmark.disabled else ROUNDS
        for _ in range(rounds):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - began)
        benchmark.pedantic(ways["with archives"], rounds=1)
    median = {name: statistics.median(values) for name, values in times.items()}
    benchmark.extra_info.update(median)
    if benchmark.disabled:  # one round among other tests judges nothing
        return
    with capsys.disabled():
        print()
        for name, seconds in median.items():
            low, _, high = statistics.quantiles(times[name], n=4)
            print(f"{name:16} {seconds * 1e3:7.0f} ms  (quartiles {low * 1e3:.0f} to {high * 1e3:.0f})")
    base = median["docker run --rm"]
    assert median["with archives"] - base <= WITH_ARCHIVES_S
    assert median["without"] - base <= WITHOUT_S


def _docker_run(engine: PrivateEngine, image: str, plan: Plan) -> None:
    variables = [word for name, value in environ(plan).items() for word in ("-e", f"{name}={value}")]
    command = ["docker", "-H", engine.url, "run", "--rm", "--network", "none", *variables, image, "/bin/true"]
    subprocess.run(command, check=True, env={**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}"})


def _launch(
    engine: Engine,
    plan: Plan,
    mounts: list[docker.types.Mount],
    inner: Task,
    task: Task,
    out: Path,
    *,
    archives: bool,
) -> None:
    """A launch as it is made for a worker, whose command ends at once."""
    out.mkdir(exist_ok=True)
    with Box(plan, engine, timeout_s=60, cancel=None) as box:
        box.create(mounts, stall_s=60)
        if archives:
            box.send(inner, task)
        box.start()
        box.until()
        if archives:
            with contextlib.suppress(KeyError):
                box.fetch(out)
