"""A full disk, inside a container and on the engine: an engine on a small disk of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import private_engine
import pytest
from conftest import make_tiny
from container_sweep import container_sweep
from private_engine import PrivateEngine, an_engine

from matrix.errors import ExitCode
from matrix_adapters.protocol import State

DISK_MB = 1000
#: of it, for a worker to fill: less than its memory limit, since this disk is memory
ROOM_MB = 100


@pytest.fixture(scope="module")
def small() -> Iterator[PrivateEngine]:
    """An engine whose disk is so small that it can be filled."""
    if why := private_engine.missing():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="fmx-small-"))
    data = folder / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(data)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    with an_engine(folder) as engine:  # unmounts it in the end
        yield engine


@pytest.fixture(scope="module")
def image(small: PrivateEngine) -> str:
    return make_tiny(small)


@contextlib.contextmanager
def filled(engine: PrivateEngine, *, leaving_mb: int) -> Iterator[None]:
    """The engine's disk, with so much room left."""
    filler = engine.folder / "data" / "filler"
    with filler.open("wb") as stream, contextlib.suppress(OSError):
        while shutil.disk_usage(filler).free > leaving_mb << 20:
            stream.write(b"\0" * (1 << 20))
            stream.flush()
    try:
        yield
    finally:
        filler.unlink()


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
