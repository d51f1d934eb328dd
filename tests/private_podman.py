"""Podman behind its Docker socket, for tests: storage, socket and process of its own.

Needs root and Debian's `podman`. Its limits are lowered to what a root without CAP_SYS_RESOURCE may
set, and runc is its runtime where that is there: crun refuses hybrid control groups.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
from private_engine import PrivateEngine, _path, unmount

_START_S = 30.0
_CONFIG = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
{runtime}cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class PrivatePodman(PrivateEngine):
    """One `podman system service`."""

    def _starts(self) -> bool:
        config = self.folder / "containers.conf"
        runtime = 'runtime = "runc"\n' if shutil.which("runc", path=_path()) else ""
        config.write_text(_CONFIG.format(runtime=runtime))
        folders = {"root": "data", "runroot": "run", "tmpdir": "tmp"}
        command = ["podman", *(f"--{name}={self.folder / place}" for name, place in folders.items())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "system", "service", "--time=0", self.url],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,  # its container monitor writes a file named `oom` where it stands
                env={**os.environ, "PATH": _path(), "CONTAINERS_CONF": str(config)},
            )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(docker.errors.DockerException, OSError):
                with self.client() as client:
                    client.ping()
                return True
            time.sleep(0.1)
        return False


@contextlib.contextmanager
def a_podman(folder: Path) -> Iterator[PrivatePodman]:
    """Podman with the base image; skips the test where it cannot be had."""
    import pytest

    if os.geteuid() != 0:
        pytest.skip("a podman of our own needs root")
    if shutil.which("podman", path=_path()) is None:
        pytest.skip("podman is not installed (Debian: podman)")
    engine = PrivatePodman(folder)
    try:
        try:
            engine.start()
            engine.load_base()
        except RuntimeError as error:
            pytest.skip(f"no podman of our own here: {' '.join(str(error).split())[-300:]}")
        yield engine
    finally:
        engine.stop()
        unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)
