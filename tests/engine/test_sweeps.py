"""Whole runs in containers: what stops them, what they leave behind, and how they go on."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import docker
import pytest
from container_sweep import container_sweep, started
from private_engine import PrivateEngine
from watching import running, until, works_on

from matrix.errors import ExitCode
from matrix.execution import leases
from matrix.execution.engine import Engine
from matrix_adapters.protocol import State


def test_a_sweep_in_containers_ends_complete_and_states_are_as_planned(
    private: PrivateEngine, tiny: str, tmp_path: Path
) -> None:
    sweep = container_sweep(tmp_path, private.url, tiny, models=["good", "crash", "eat"], launches=1)
    outcome = sweep.run()
    assert outcome.outcome == "complete"
    assert sweep.states() == {"good": State.OK, "crash": State.FAILED, "eat": State.OOM}
    assert outcome.exit_code == ExitCode.VERDICT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_request_leaves_no_container_and_the_run_goes_on_later(
    private: PrivateEngine, tiny: str, client: docker.DockerClient, tmp_path: Path, number: signal.Signals
) -> None:
    sweep = container_sweep(tmp_path, private.url, tiny, models=["slow"], launches=1)
    process = started(tmp_path, private.url, tiny)
    until(lambda: bool(running(client)))
    process.send_signal(number)
    assert process.wait(30) == ExitCode.INTERRUPTED
    assert client.containers.list(all=True) == []
    assert sweep.resume().outcome == "complete"
    assert sweep.states() == {"slow": State.OK}


def test_what_kill_9_leaves_is_gone_after_the_next_start(
    private: PrivateEngine, tiny: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    sweep = container_sweep(tmp_path, private.url, tiny, models=["hang"], launches=1, timeout_s=5)
    process = started(tmp_path, private.url, tiny)
    until(lambda: bool(running(client)))
    left = running(client)
    process.kill()
    process.wait()
    assert running(client) == left
    assert leases.sweep(Engine(client)) == left
    sweep.resume()
    assert sweep.states() == {"hang": State.TIMEOUT}


def test_a_second_run_never_sweeps_a_live_one(
    private: PrivateEngine, tiny: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    container_sweep(tmp_path / "first", private.url, tiny, models=["slow"], launches=1)
    process = started(tmp_path / "first", private.url, tiny)
    until(lambda: bool(running(client)))
    second = container_sweep(tmp_path / "second", private.url, tiny, models=["good"], launches=1)
    second.run()
    assert second.states() == {"good": State.OK}
    assert process.wait(60) == ExitCode.OK


def test_an_engine_that_is_killed_and_comes_back_costs_no_cell(
    fragile: PrivateEngine, tiny: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    sweep = container_sweep(tmp_path, fragile.url, tiny, models=["slow", "good"], launches=1)

    def crash() -> None:
        until(lambda: bool(works_on(client, "slow")))
        fragile.kill()
        time.sleep(1)
        fragile.start()

    helper = threading.Thread(target=crash)
    helper.start()
    outcome = sweep.run()
    helper.join()
    assert outcome.outcome == "complete"
    assert sweep.states() == {"slow": State.OK, "good": State.OK}
    assert client.containers.list(all=True) == []


def test_an_engine_that_stays_away_breaks_the_run_off_and_resume_completes_it(
    fragile: PrivateEngine, tiny: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    sweep = container_sweep(tmp_path, fragile.url, tiny, back_s=2, models=["slow", "good"], launches=1)

    def crash() -> None:
        until(lambda: bool(works_on(client, "slow")))
        fragile.kill()

    helper = threading.Thread(target=crash)
    helper.start()
    outcome = sweep.run()
    helper.join()
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert "does not answer" in str(outcome.error)
    assert set(sweep.states()) == {"slow", "good"}
    fragile.start()
    assert sweep.resume().outcome == "complete"
    assert sweep.states() == {"slow": State.OK, "good": State.OK}
    assert client.containers.list(all=True) == []
