"""Every way a launch can end in a container, provoked on a real engine: state, reason, nothing left."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path

import docker
import numpy as np
import pytest
from private_engine import PrivateEngine
from watching import once_it_works_on

from matrix.errors import EngineLost
from matrix.execution import leases
from matrix.execution.cancel import Cancel
from matrix.execution.container import Plan, run_in_container
from matrix.execution.engine import Engine
from matrix.execution.volumes import Volumes
from matrix_adapters.protocol import Measure, ModelSpec, Result, State, Task, TaskKind

Launch = Callable[..., Result]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "weights").write_bytes(b"w" * 1000)
    return folder


@pytest.fixture
def launch(engine: Engine, volumes: Volumes, plan: Plan, tmp_path: Path, checkpoint: Path) -> Launch:
    """Launch the toy framework, which does what `does` says, in a container."""
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.arange(4, dtype=np.float32))

    def run(
        does: str,
        *,
        timeout_s: float = 60,
        stall_s: float = 60,
        cancel: Cancel | None = None,
        **changes: object,
    ) -> Result:
        task = Task(
            kind=TaskKind.MEASURE,
            framework="toy",
            adapter="toy_adapter",
            model=ModelSpec(name=does, format="none", task="backbone"),
            artefacts={"checkpoint": str(checkpoint)},
            inputs=str(inputs),
            measure=Measure(samples=5, max_steady_s=0.2, max_warmup_s=0.1),
        )
        return run_in_container(
            dataclasses.replace(plan, **changes),  # type: ignore[arg-type]
            engine,
            volumes,
            task,
            tmp_path / "job",
            timeout_s=timeout_s,
            stall_s=stall_s,
            cancel=cancel,
        )

    return run


def reason(result: Result) -> tuple[State, str]:
    assert result.reason is not None
    return result.state, result.reason.code


def test_a_launch_in_a_container_leaves_what_a_local_one_leaves(launch: Launch, tmp_path: Path) -> None:
    result = launch("good")
    assert result.state is State.OK
    assert result.effective["read"] == {"checkpoint": ["config.json", "weights"]}
    assert {path.name for path in (tmp_path / "job/out").iterdir()} >= {
        "result.json",
        "samples.npz",
        "outputs.npz",
        "log.txt",
    }
    seen = result.probes["orchestrator"]
    assert seen["exit_status"] == 0
    assert seen["container"]["memory_limit"] == 256 << 20
    assert 0 < seen["container"]["memory_peak"] <= 256 << 20


def test_a_worker_can_reach_no_network_write_no_root_and_become_nobody_else(launch: Launch) -> None:
    seen = launch("spy").probes["framework"]
    assert "Network is unreachable" in seen["network"]
    assert seen["interfaces"] == ["lo"]
    assert "Read-only file system" in seen["root"]
    assert "Read-only file system" in seen["worker"]
    assert "Operation not permitted" in seen["setuid"]
    assert "Operation not permitted" in seen["mknod"]
    assert seen["user"] == 10001
    assert int(seen["capabilities"], 16) == 0
    assert seen["no_new_privileges"] == "1"


def test_a_crash_is_named_by_its_signal(launch: Launch) -> None:
    result = launch("crash")
    assert reason(result) == (State.FAILED, "crash")
    assert "SIGSEGV during import" in result.reason.text  # type: ignore[union-attr]


def test_out_of_memory_says_the_limit_and_the_peak(launch: Launch) -> None:
    result = launch("eat")
    assert reason(result) == (State.OOM, "oom_kill")
    assert "(limit 256 MiB, peak 256 MiB)" in result.reason.text  # type: ignore[union-attr]


def test_a_killed_child_is_out_of_memory_although_the_worker_came_through(launch: Launch) -> None:
    result = launch("childeats")
    assert reason(result) == (State.OOM, "oom_kill")
    assert "a process that the worker had started" in result.reason.text  # type: ignore[union-attr]
    assert not result.metrics


def test_an_exit_status_of_137_alone_is_no_memory_shortage(launch: Launch) -> None:
    assert reason(launch("exit137")) == (State.FAILED, "exit_status")


def test_a_worker_that_is_killed_with_memory_left_was_killed_from_outside(launch: Launch) -> None:
    result = launch("killed")
    assert reason(result) == (State.FAILED, "killed")
    assert "SIGKILL" in result.reason.text  # type: ignore[union-attr]


def test_a_container_that_is_killed_is_killed(launch: Launch, client: docker.DockerClient) -> None:
    once_it_works_on(client, "hang", client.api.kill)
    assert reason(launch("hang")) == (State.FAILED, "killed")


def test_a_container_that_is_removed_is_missed(launch: Launch, client: docker.DockerClient) -> None:
    once_it_works_on(client, "hang", lambda name: client.api.remove_container(name, force=True, v=True))
    assert reason(launch("hang")) == (State.FAILED, "container_removed")


def test_the_time_allowed_is_kept_inside_the_container(launch: Launch) -> None:
    began = time.monotonic()
    result = launch("hang", timeout_s=4)
    assert reason(result) == (State.TIMEOUT, "deadline")
    assert time.monotonic() - began < 20


def test_a_worker_that_neither_beats_nor_computes_hangs(launch: Launch) -> None:
    assert reason(launch("wedge", stall_s=2)) == (State.TIMEOUT, "no_sign_of_life")


def test_a_stop_request_ends_the_launch(launch: Launch, client: docker.DockerClient) -> None:
    cancel = Cancel()
    once_it_works_on(client, "hang", lambda _: cancel.set())
    assert reason(launch("hang", cancel=cancel)) == (State.INTERRUPTED, "interrupted")
    cancel.close()


def test_what_a_worker_leaves_running_is_killed_and_counted(launch: Launch) -> None:
    result = launch("stray")
    assert result.state is State.OK
    assert result.probes["orchestrator"]["killed_afterwards"] == 1


def test_a_missing_device_node_is_unavailable(launch: Launch) -> None:
    result = launch("good", devices=("/dev/kfd-that-is-not-there",))
    assert reason(result) == (State.UNAVAILABLE, "device_refused")
    assert "kfd-that-is-not-there" in result.reason.text  # type: ignore[union-attr]


def test_a_gpu_that_the_engine_cannot_give_is_unavailable(launch: Launch) -> None:
    result = launch("good", device_requests=({"capabilities": [["gpu"]], "count": -1},))
    assert reason(result) == (State.UNAVAILABLE, "device_refused")


def test_a_setting_that_the_engine_refuses_is_told_in_its_words(launch: Launch) -> None:
    result = launch("good", cpuset="4096")
    assert reason(result) == (State.FAILED, "engine_refused")
    assert "4096" in result.reason.text  # type: ignore[union-attr]


def test_an_image_that_is_gone_is_told_from_a_container_that_is_gone(launch: Launch) -> None:
    assert launch("good").state is State.OK  # its volumes are there: the launch itself is refused
    assert reason(launch("good", image="sha256:" + "0" * 64)) == (State.FAILED, "image_gone")


def test_an_engine_that_is_killed_takes_the_launch_with_it_and_is_waited_for(
    private: PrivateEngine, launch: Launch, client: docker.DockerClient, engine: Engine
) -> None:
    restarted = threading.Event()

    def crash(_: object) -> None:
        private.kill()
        private.start()
        restarted.set()

    once_it_works_on(client, "hang", crash)
    result = launch("hang")
    assert reason(result) == (State.FAILED, "engine_lost")
    assert restarted.wait(60)
    assert launch("good").state is State.OK
    leases.sweep(engine, run="test")


def test_an_engine_that_does_not_answer_ends_the_run_not_the_cell(
    plan: Plan, tmp_path: Path, home: Path
) -> None:
    client = docker.DockerClient(base_url=f"unix://{tmp_path}/none.sock", version="1.41")
    engine = Engine(client, back_s=0.5)
    with pytest.raises(EngineLost, match=r"does not answer.*--resume"):
        run_in_container(
            plan, engine, Volumes(engine, home, "test"), _null_task(), tmp_path, timeout_s=5, stall_s=5
        )


def test_models_and_worker_are_sent_once(launch: Launch, client: docker.DockerClient) -> None:
    launch("good")
    before = {volume.name for volume in client.volumes.list()}
    assert launch("good").state is State.OK
    assert {volume.name for volume in client.volumes.list()} == before


def _null_task() -> Task:
    return Task(kind=TaskKind.MEASURE, framework="null", adapter="matrix_adapters.null")
