"""A full disk, inside a container and on the engine: an engine on a small disk of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_tiny
from container_sweep import container_sweep
from private_engine import PrivateEngine
from small_engine import ROOM_MB, filled

from matrix.errors import ExitCode
from matrix_adapters.protocol import State


@pytest.fixture(scope="module")
def image(small: PrivateEngine) -> str:
    return make_tiny(small)


def test_a_worker_that_fills_the_disk_says_so_and_the_disk_is_free_again(
    small: PrivateEngine, image: str, tmp_path: Path
) -> None:
    sweep = container_sweep(tmp_path, small.url, image, models=["fill", "good"], launches=1)
    with filled(small, leaving_mb=ROOM_MB):
        outcome = sweep.run()
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert "disk full" in str(outcome.error).lower() or "no space left" in str(outcome.error).lower()
    assert sweep.states()["fill"] is State.FAILED
    again = container_sweep(tmp_path / "again", small.url, image, models=["good"], launches=1)
    assert again.run().outcome == "complete"
    assert again.states() == {"good": State.OK}
    with small.client() as client:
        assert client.containers.list(all=True) == []


def test_an_engine_without_room_for_a_container_breaks_the_run_off(
    small: PrivateEngine, image: str, tmp_path: Path
) -> None:
    sweep = container_sweep(tmp_path, small.url, image, models=["good"], launches=1)
    with filled(small, leaving_mb=0):
        outcome = sweep.run()
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert "disk full on the container engine" in str(outcome.error)
    assert sweep.resume().outcome == "complete"
    assert sweep.states() == {"good": State.OK}
