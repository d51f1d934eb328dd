"""What it takes to tell one half of a live pair that it is its turn, and to hear that it is done.

Two halves of the null adapter, 200 slices each of one empty sample, alternating: all that is
timed is our own way there and back. Well below a millisecond, in processes and in containers.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from live_toys import ToyHalf
from private_engine import PrivateEngine, an_engine
from tiny_image import make_tiny

from matrix.environments.bundle import Bundle
from matrix.execution.container import Plan, open_in_container
from matrix.execution.engine import Engine
from matrix.execution.live import open_live
from matrix.execution.talk import Live
from matrix.execution.volumes import Volumes
from matrix_adapters.protocol import State

SLICES = 200
MOST_MS = 1.0
PYTHON = "/usr/bin/python3"

Open = Callable[[str], AbstractContextManager[Live]]


def test_a_turn_of_a_process_costs_well_below_a_millisecond(
    tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    built = ToyHalf(tmp_path / "null")
    task = built.task({"warmup_calls": 1, "calls": 1}, adapter="matrix_adapters.null", inputs=None)

    def start(name: str) -> AbstractContextManager[Live]:
        return open_live(built, task, tmp_path / name, timeout_s=600, stall_s=60)

    _report("process", start, benchmark, capsys)


@pytest.mark.engine
def test_a_turn_of_a_container_costs_well_below_a_millisecond(
    engine: PrivateEngine, tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    built = ToyHalf(tmp_path / "null")
    task = built.task({"warmup_calls": 1, "calls": 1}, adapter="matrix_adapters.null", inputs=None)
    with engine.client() as client:
        ours = Engine(client)
        plan = Plan(image=make_tiny(engine), python=PYTHON, worker=Bundle(tmp_path).stage(), run="bench")
        volumes = Volumes(ours, tmp_path, "bench")

        def start(name: str) -> AbstractContextManager[Live]:
            return open_in_container(plan, ours, volumes, task, tmp_path / name, timeout_s=600, stall_s=60)

        _report("container", start, benchmark, capsys)


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    with an_engine(Path(tempfile.mkdtemp(prefix="fmx-bench-"))) as private:
        yield private


def _report(where: str, start: Open, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    slices = 5 if benchmark.disabled else SLICES
    times: list[float] = []
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(start(name)) for name in ("a", "b")]
        assert all(live.wait_ready() for live in pair)
        for live in pair * slices:
            seconds = live.run(1)
            assert seconds is not None
            times.append(seconds * 1e3)
        benchmark.pedantic(pair[0].run, args=(1,), rounds=1)
        assert [live.finish().state for live in pair] == [State.OK, State.OK]
    median = statistics.median(times)
    benchmark.extra_info["median_ms"] = median
    if benchmark.disabled:  # a few among other tests judge nothing
        return
    worst = statistics.quantiles(times, n=100)[98]
    with capsys.disabled():
        said = f"median {median:.3f} ms, 99th percentile {worst:.3f} ms, n = {len(times)}"
        print(f"\n  a turn of a {where}: {said}")
    assert median < MOST_MS
