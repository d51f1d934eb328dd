"""A container engine of our own, for tests: private socket, data folder and processes.

Needs root, Debian's `docker.io` and, for the base image, `debootstrap`. The base image (Debian 12
with its Python 3.11) is made once and kept in the user's cache folder. `python private_engine.py FOLDER`
runs an engine until it is interrupted, for a person to look around in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import platformdirs

#: what continuous integration installs to run these tests
DEBIAN_PACKAGES = ("docker.io", "debootstrap")
BASE_TAG = "framework-matrix-test-base:bookworm"
_INCLUDE = "python3,python-is-python3,ca-certificates"
_START_S, _STARTS = 60.0, 3
_REMOVED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man")


def missing() -> str:
    """Why no engine can be started here; "" where one can."""
    if os.geteuid() != 0:
        return "an engine of our own needs root"
    absent = [name for name in ("dockerd", "containerd", "runc") if shutil.which(name, path=_path()) is None]
    return f"{', '.join(absent)} not installed (Debian: {' '.join(DEBIAN_PACKAGES)})" if absent else ""


@contextlib.contextmanager
def an_engine(folder: Path) -> Iterator[PrivateEngine]:
    """An engine with the base image, for as long as it is needed; skips the test where it cannot be had."""
    import pytest

    if why := missing():
        pytest.skip(why)
    engine = PrivateEngine(folder)
    try:
        try:
            engine.start()
            engine.load_base()
        except RuntimeError as error:
            pytest.skip(f"no engine of our own here: {' '.join(str(error).split())[-300:]}")
        yield engine
    finally:
        engine.stop()
        unmount(folder)
        shutil.rmtree(folder)


class PrivateEngine:
    """One dockerd. Its containers have no network but `none` and `host`: no bridge, no firewall rules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "dockerd.log"
        socket = folder / "engine.sock"
        if len(str(socket)) > 100:  # the kernel's limit for a socket's path is 107
            raise ValueError(f"{folder} is too long a path for a socket")
        self.url = f"unix://{socket}"

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the daemon lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and return once it answers. Raises RuntimeError with the end of its log.

        On a busy machine its containerd may take longer than the daemon waits: it is tried again.
        """
        for attempt in range(_STARTS):
            if self._starts():
                return
            self.kill()
            time.sleep(attempt)
        end = self.log.read_text(errors="replace").splitlines()[-5:]
        raise RuntimeError("the engine did not start:\n" + "\n".join(end))

    def _starts(self) -> bool:
        options = {
            "host": self.url,
            "data-root": self.folder / "data",
            "exec-root": self.folder / "exec",
            "pidfile": self.folder / "engine.pid",
            "bridge": "none",
        }
        (self.folder / "engine.pid").unlink(missing_ok=True)  # a killed one left it
        command = ["dockerd", "--iptables=false", "--ip6tables=false"]
        command += [f"--{name}={value}" for name, value in options.items()]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests
                env={**os.environ, "PATH": _path()},
            )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(docker.errors.DockerException, OSError):
                with self.client() as client:
                    client.ping()
                return True
            time.sleep(0.1)
        return False

    def stop(self) -> None:
        """An orderly end: its containers and its containerd end with it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL to the daemon alone: containers and containerd live on, as after a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextlib.contextmanager
    def client(self) -> Iterator[docker.DockerClient]:
        """A client of this engine."""
        client = docker.DockerClient(base_url=self.url, timeout=60)
        try:
            yield client
        finally:
            client.close()

    def load_base(self) -> str:
        """Have the base image; its tag."""
        with self.client() as client:
            with contextlib.suppress(docker.errors.ImageNotFound):
                client.images.get(BASE_TAG)
                return BASE_TAG
            repository, _, tag = BASE_TAG.partition(":")
            client.api.import_image_from_file(
                str(base_archive()), repository=repository, tag=tag, changes=['ENV PATH="/usr/bin:/bin"']
            )
            with contextlib.suppress(docker.errors.ImageNotFound):  # podman 4 imports as `latest`, whatever
                client.images.get(f"{repository}:latest").tag(repository, tag)
        return BASE_TAG


def base_archive() -> Path:
    """The root file system of the base image as a tar file, made with debootstrap where it is missing.

    Raises RuntimeError with the end of debootstrap's output.
    """
    folder = platformdirs.user_cache_path("framework-matrix-tests")
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "base-bookworm.tar"
    with (folder / "base.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _bootstrap(folder / "base.partial", archive)
    return archive


def _bootstrap(root: Path, archive: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
    if shutil.which("debootstrap", path=_path()) is None:
        raise RuntimeError("debootstrap is not installed: it makes the base image")
    command = ["debootstrap", "--variant=minbase", f"--include={_INCLUDE}", "bookworm", str(root), mirror]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": _path()}
    )
    if done.returncode != 0:
        raise RuntimeError("debootstrap failed: " + " | ".join(done.stdout.splitlines()[-3:]))
    for name in _REMOVED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial"):  # apt wants them
        (root / name).mkdir(parents=True)
    partial = archive.with_suffix(".partial")
    subprocess.run(["tar", "-C", str(root), "--numeric-owner", "-cf", str(partial), "."], check=True)
    partial.rename(archive)
    shutil.rmtree(root, ignore_errors=True)


def unmount(folder: Path) -> None:
    """Whatever an engine, killed ones above all, has left mounted below its folder; innermost first."""
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for place in sorted((p for p in places if Path(p).is_relative_to(folder)), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False)


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


if __name__ == "__main__":
    engine = PrivateEngine(Path(sys.argv[1]))
    engine.start()
    print(f"export DOCKER_HOST={engine.url}  # with the image {engine.load_base()}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        signal.pause()
    finally:
        engine.stop()
