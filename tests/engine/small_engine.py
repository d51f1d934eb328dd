"""An engine on a disk of its own that is so small that it can be filled."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import private_engine
import pytest
from private_engine import PrivateEngine, an_engine

DISK_MB = 1000
#: of it, for a worker to fill: less than its memory limit, since this disk is memory
ROOM_MB = 100


@contextlib.contextmanager
def a_small_engine() -> Iterator[PrivateEngine]:
    """Skips the test where none can be had."""
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
