"""The way to the container engine that the user's surroundings name, as Docker's own command finds it.

`DOCKER_HOST` first, then the current context of the command line, then the usual socket. What
cannot be reached for want of something here (a context, a package) is said before any attempt.
"""

from __future__ import annotations

import contextlib
import os
import weakref

import docker
import docker.errors
from docker.context import ContextAPI

from matrix.execution.bridge import bridge_to

DEFAULT_SOCKET = "unix:///var/run/docker.sock"
#: docker-py's names for a socket of this machine
_LOCAL = ("http+docker://localhost", "http+docker://localnpipe", "unix://", "http://localhost:")
#: clients whose socket leads to another machine
_far: weakref.WeakSet[docker.DockerClient] = weakref.WeakSet()


def client(timeout_s: float) -> docker.DockerClient:
    """A client of that engine. Raises docker.errors.DockerException with words for people."""
    where = address()
    if not where.startswith("ssh://"):
        return docker.from_env(timeout=int(timeout_s))
    return client_over_ssh(where, timeout_s)


def client_over_ssh(where: str, timeout_s: float) -> docker.DockerClient:
    """A client of the engine at `ssh://...`. Raises docker.errors.DockerException with ssh's own words."""
    bridge = bridge_to(where)
    with contextlib.suppress(docker.errors.DockerException):  # which would only say that a socket closed
        found = docker.DockerClient(base_url=bridge.url, timeout=int(timeout_s))
        _far.add(found)
        return found
    raise docker.errors.DockerException(bridge.last_words() or "ssh ended without a word")


def address() -> str:
    """Where the engine is looked for. Raises DockerException for a context that does not exist."""
    if host := os.environ.get("DOCKER_HOST"):
        return host
    name = os.environ.get("DOCKER_CONTEXT")
    if name and ContextAPI.get_context(name) is None:
        # docker-py would silently take the local engine instead.
        raise docker.errors.DockerException(f"there is no docker context {name!r} (DOCKER_CONTEXT)")
    return str(ContextAPI.kwargs_from_context().get("base_url") or DEFAULT_SOCKET).removeprefix("http+")


def described() -> str:
    """The address, and the context that it comes from, in words."""
    try:
        where = address()
    except docker.errors.DockerException:
        return f"docker context {os.environ.get('DOCKER_CONTEXT')}"
    current = ContextAPI.get_current_context()
    name = os.environ.get("DOCKER_CONTEXT") or (current.name if current else "")
    if os.environ.get("DOCKER_HOST") or name in ("", "default"):
        return where
    return f"{where} (docker context {name})"


def is_local(found: docker.DockerClient) -> bool:
    """Whether its containers run on this machine, as far as the address tells."""
    return found not in _far and str(found.api.base_url).startswith(_LOCAL)


def advice(where: str) -> str:
    """What to try when nothing answers there; "" for nothing in particular."""
    if where.startswith("ssh://"):
        host = where.removeprefix("ssh://").partition("/")[0]
        return f"; `docker -H ssh://{host} version` has to work without asking for a password"
    return ""
