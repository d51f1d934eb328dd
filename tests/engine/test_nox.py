"""Ctrl-C through nox, which kills its child after 0.3 s unless its sessions say otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest
from container_sweep import container_sweep
from private_engine import PrivateEngine
from watching import until, works_on

from matrix_adapters.protocol import State

NOXFILE = Path(__file__).with_name("interrupted_noxfile.py")
NOX = (sys.executable, "-m", "nox", "-f", str(NOXFILE), "-s", "sweep", "--")


@pytest.mark.parametrize("does", ["slow", "deaf"])
def test_ctrl_c_at_a_session_of_nox_leaves_no_container_and_a_run_that_goes_on(
    private: PrivateEngine, tiny: str, client: docker.DockerClient, tmp_path: Path, does: str
) -> None:
    """A worker that ends when told, and one that has to be killed, which takes longer than nox would wait."""
    sweep = container_sweep(tmp_path, private.url, tiny, models=[does, "good"], launches=1, timeout_s=20)
    tests = NOXFILE.parents[1]
    path = os.pathsep.join(map(str, [tests.parent, tests.parent / "adapters", tests, NOXFILE.parent]))
    process = subprocess.Popen(
        [*NOX, str(tmp_path), private.url, tiny, "30"],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # its own group, which gets the signal as a terminal would send it
    )
    until(lambda: bool(works_on(client, does)))
    time.sleep(0.5)  # its worker is up then
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    assert client.containers.list(all=True) == []
    if does == "slow":
        sweep.resume()
        assert sweep.states() == {"slow": State.OK, "good": State.OK}
