"""Live pairs in containers of a real engine: turns, and every way one half can end."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import numpy as np
import pytest
from private_engine import PrivateEngine
from watching import running

from matrix.environments.bundle import Bundle
from matrix.execution import leases
from matrix.execution.cancel import Cancel
from matrix.execution.container import Plan, open_in_container
from matrix.execution.engine import Engine
from matrix.execution.talk import Live
from matrix.execution.volumes import Volumes
from matrix_adapters.protocol import ModelSpec, Result, State, Task, TaskKind

Half = Callable[..., "contextlib.AbstractContextManager[Live]"]
#: longer than a parked worker is silent
STALL_S = 15


@pytest.fixture(scope="module")
def turning(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The tiny image with a framework that behaves until its slices begin."""
    adapter = Path(__file__).with_name("turning_adapter")
    return dataclasses.replace(plan, worker=Bundle(tmp_path_factory.mktemp("turning"), [adapter]).stage())


@pytest.fixture
def half(engine: Engine, volumes: Volumes, turning: Plan, tmp_path: Path) -> Half:
    """Open one half of a pair of the toy framework that does what `does` says in its slices."""
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.arange(4, dtype=np.float32))

    def start(
        does: str = "good",
        *,
        name: str = "a",
        timeout_s: float = 90,
        cancel: Cancel | None = None,
        **changes: Any,
    ) -> contextlib.AbstractContextManager[Live]:
        return open_in_container(
            dataclasses.replace(turning, **changes),
            engine,
            volumes,
            task(does, inputs),
            tmp_path / name,
            timeout_s=timeout_s,
            stall_s=STALL_S,
            cancel=cancel,
        )

    return start


def task(does: str, inputs: Path) -> Task:
    return Task(
        kind=TaskKind.SLICES,
        framework="turning",
        adapter="turning_adapter",
        model=ModelSpec(name=does, format="none", task="backbone"),
        inputs=str(inputs),
        options={"warmup_calls": 3, "calls": 1},
    )


def reason(result: Result) -> tuple[State, str]:
    assert result.reason is not None
    return result.state, result.reason.code


def test_two_containers_take_turns_and_no_sample_of_one_overlaps_a_sample_of_the_other(
    half: Half, tmp_path: Path
) -> None:
    with half("chatty", name="a") as a, half("chatty", name="b") as b:
        assert a.wait_ready()
        assert b.wait_ready()
        for live in (a, b, b, a, b, a, a, b):
            assert live.run(3) is not None
        results = [a.finish(), b.finish()]
    assert [result.state for result in results] == [State.OK, State.OK]
    slices = []
    for name in "ab":
        with np.load(tmp_path / name / "out/samples.npz") as archive:
            ends = archive["start_ns"] + archive["wall_ns"]
            for number in range(4):
                mine = archive["slice"] == number
                slices.append((int(archive["start_ns"][mine].min()), int(ends[mine].max()), name))
        assert "chatter" in (tmp_path / name / "out/log.txt").read_text()
    slices.sort()
    assert "".join(name for _, _, name in slices) == "abbabaab"
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(slices))
    one, two = (result.probes["orchestrator"] for result in results)
    assert one["exit_status"] == two["exit_status"] == 0
    assert one["environment"]["shaken"] != two["environment"]["shaken"]


def test_a_half_that_dies_in_a_slice_is_classified_and_the_other_one_goes_on(half: Half) -> None:
    with half("crash", name="a") as a, half(name="b") as b:
        assert a.wait_ready()
        assert b.wait_ready()
        assert a.run(3) is None
        assert b.run(3) is not None
        results = [a.finish(), b.finish()]
    assert reason(results[0]) == (State.FAILED, "crash")
    assert "SIGSEGV during slices" in results[0].reason.text  # type: ignore[union-attr]
    assert results[1].state is State.OK


def test_a_half_that_eats_all_memory_is_out_of_memory(half: Half) -> None:
    with half("eat") as live:
        assert live.wait_ready()
        assert live.run(3) is None
        assert reason(live.finish()) == (State.OOM, "oom_kill")


def test_a_half_that_hangs_in_a_slice_is_stopped_and_a_parked_one_is_not(half: Half) -> None:
    with half("hang", name="a") as a, half(name="b") as b:
        assert a.wait_ready()
        assert b.wait_ready()
        assert a.run(3) is None  # as long as b is parked, and longer than any silence that is allowed
        assert b.run(3) is not None
        results = [a.finish(), b.finish()]
    assert reason(results[0]) == (State.TIMEOUT, "no_sign_of_life")
    assert results[1].state is State.OK


def test_the_time_allowed_is_for_its_whole_life(half: Half) -> None:
    with half("slow", timeout_s=3) as live:
        assert not live.wait_ready()
        assert reason(live.finish()) == (State.TIMEOUT, "deadline")


def test_a_stop_request_ends_a_slice(half: Half) -> None:
    cancel = Cancel()
    with half("hang", cancel=cancel) as live:
        assert live.wait_ready()
        threading.Timer(0.5, cancel.set).start()
        assert live.run(3) is None
        assert reason(live.finish()) == (State.INTERRUPTED, "interrupted")
    cancel.close()


def test_a_container_that_is_removed_is_missed(half: Half, client: docker.DockerClient) -> None:
    with half("hang") as live:
        assert live.wait_ready()
        (name,) = running(client)
        threading.Timer(0.5, client.api.remove_container, [name], {"force": True, "v": True}).start()
        assert live.run(3) is None
        assert reason(live.finish()) == (State.FAILED, "container_removed")


def test_a_half_that_the_engine_refuses_is_a_result(half: Half) -> None:
    with half(cpuset="4096") as live:
        assert not live.wait_ready()
        assert live.run(3) is None
        assert reason(live.finish()) == (State.FAILED, "engine_refused")


def test_leaving_a_half_in_the_middle_removes_it(half: Half, client: docker.DockerClient) -> None:
    with half("hang") as live:
        assert live.wait_ready()
        assert len(running(client)) == 1
    assert not client.containers.list(all=True)


def test_an_engine_that_is_killed_takes_both_halves_with_it(
    private: PrivateEngine, half: Half, engine: Engine
) -> None:
    with half("nap", name="a") as a, half(name="b") as b:
        assert a.wait_ready()
        assert b.wait_ready()

        def crash() -> None:
            private.kill()
            private.start()

        crashing = threading.Timer(0.5, crash)
        crashing.start()
        assert a.run(10_000) is None
        results = [a.finish(), b.finish()]
        crashing.join()
    assert [reason(result) for result in results] == [(State.FAILED, "engine_lost")] * 2
    leases.sweep(engine, run="test")


def test_an_orchestrator_that_is_killed_leaves_containers_that_end_by_themselves(
    private: PrivateEngine, turning: Plan, client: docker.DockerClient, engine: Engine, tmp_path: Path
) -> None:
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.arange(4, dtype=np.float32))
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path, PosixPath
import docker
from test_live_in_containers import task
from matrix.execution.container import Plan, open_in_container
from matrix.execution.engine import Engine
from matrix.execution.volumes import Volumes
folder = Path({str(tmp_path)!r})
engine = Engine(docker.DockerClient(base_url={private.url!r}, timeout=60))
volumes = Volumes(engine, folder / "home", "test")
how = dict(timeout_s=600, stall_s=600)
plan = {turning!r}
good, nap = (task(does, folder / "inputs.npz") for does in ("good", "nap"))
with open_in_container(plan, engine, volumes, good, folder / "a", **how) as a:
    with open_in_container(plan, engine, volumes, nap, folder / "b", **how) as b:
        print(a.wait_ready(), b.wait_ready(), flush=True)
        b.run(100)
"""
    orchestrator = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert orchestrator.stdout is not None
    assert orchestrator.stdout.readline() == b"True True\n"
    assert len(running(client)) == 2
    time.sleep(0.5)
    orchestrator.kill()
    orchestrator.communicate()
    deadline = time.monotonic() + 60
    while running(client):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    leases.sweep(engine)
    assert not client.containers.list(all=True)
