"""What runs on an engine now, for tests that interfere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import docker

from matrix.execution import leases


def running(client: docker.DockerClient) -> list[str]:
    """Containers of launches that run now."""
    with contextlib.suppress(docker.errors.DockerException):
        found = client.api.containers(filters={"label": leases.LEASE_LABEL})
        names = [container["Names"][0].lstrip("/") for container in found]
        return [name for name in names if "-fill-" not in name]
    return []


def works_on(client: docker.DockerClient, model: str) -> str:
    """The container that runs a launch of `model` now; "" for none."""
    for name in running(client):
        with contextlib.suppress(docker.errors.DockerException):
            task = client.containers.get(name).exec_run("cat /job/in/task.json").output
            if f'"name":"{model}"'.encode() in task:
                return name
    return ""


def until(what: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait for it; a test that waits in vain fails."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def once_it_works_on(
    client: docker.DockerClient, model: str, act: Callable[[str], object], *, times: int = 1
) -> None:
    """Do something to the container of a launch, from another thread, once its worker is up.

    With `times`, to as many containers, one after the other.
    """

    def wait() -> None:
        done: set[str] = set()
        while len(done) < times:
            deadline = time.monotonic() + 60
            while not (name := works_on(client, model)) or name in done:
                assert time.monotonic() < deadline, "it did not happen in time"
                time.sleep(0.1)
            time.sleep(0.5)
            act(name)
            done.add(name)

    threading.Thread(target=wait, daemon=True).start()
