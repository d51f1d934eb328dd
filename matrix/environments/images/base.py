"""The image that another is built from: which one, is it here, and what Python does it hold."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound
from docker.models.images import Image

from matrix.environments.base import BuildFailed, Progress
from matrix.environments.images import failures
from matrix.environments.images.sources import Source
from matrix.errors import UsageError
from matrix.execution import leases
from matrix_adapters.protocol import ProtocolError, Reason, from_json, to_json, write_atomic

VARIABLE = "FRAMEWORK_MATRIX_BASE"
REGISTRY_TIMEOUT_S = 10.0

#: asked of the base's own Python: what decides which wheels fit
_QUESTION = """\
import json, platform, sys, sysconfig
print(json.dumps({"python": platform.python_version(), "implementation": sys.implementation.name,
"machine": platform.machine(), "libc": list(platform.libc_ver()), "platform": sysconfig.get_platform()}))
"""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class BaseFacts:
    """What the base image's Python says of itself."""

    python: str  # "3.11.2"
    implementation: str  # "cpython"
    machine: str  # "x86_64"
    libc: tuple[str, ...]  # ("glibc", "2.36")
    platform: str  # "linux-x86_64"


def reference(source: Source, configured: Mapping[str, str]) -> str:
    """The base image's name: the sweep's `images.base.<hardware>`, the variable, the Dockerfile's own.

    `FRAMEWORK_MATRIX_BASE` is one name for all, or `cpu=NAME,nvidia=NAME`. Raises BuildFailed
    where nobody names one.
    """
    name = configured.get(source.hardware) or from_variable(source.hardware) or source.base
    if not name:
        raise BuildFailed(
            Reason(
                code="base_unnamed",
                text=f"no base image is named for {source.framework} on {source.hardware}: set "
                f"`images.base.{source.hardware}` in the sweep, or {VARIABLE}.",
            )
        )
    return name


def from_variable(hardware: str) -> str:
    """What the variable says for one hardware profile; "" for nothing."""
    text = os.environ.get(VARIABLE, "").strip()
    if "=" not in text:
        return text
    pairs = dict(part.strip().partition("=")[::2] for part in text.split(",") if part.strip())
    if not all(pairs.values()):
        raise UsageError(f"{VARIABLE}={text}: write one image for all, or hardware=image,hardware=image")
    return pairs.get(hardware, "")


def ensure(client: docker.DockerClient, name: str, *, progress: Progress, log: Path) -> Image:
    """The base image, pulled when it is absent. Raises BuildFailed (`base_missing`)."""
    with contextlib.suppress(ImageNotFound):
        return client.images.get(name)
    progress(f"asking the registry for {name}")
    if said := registry_problem(client, name):
        raise BuildFailed(
            Reason(
                code="base_missing",
                text=f"the base image {name} is not on the engine and cannot be pulled ({said}): load it "
                f"(`docker load`, `docker pull`), or name another with `images.base.<hardware>` in the "
                f"sweep or {VARIABLE}.",
            ),
            log if log.exists() else None,
        )
    progress(f"pulling {name}")
    try:
        with log.open("a", encoding="utf-8") as stream:
            for event in client.api.pull(name, stream=True, decode=True):
                stream.write(json.dumps(event) + "\n")
                if text := event.get("error"):
                    raise BuildFailed(failures.of_event(str(text), [], log), log)
        return client.images.get(name)
    except failures.ENGINE_ERRORS as error:
        raise BuildFailed(failures.of_exception(error, silent_s=0, log=log), log) from error


def registry_problem(client: docker.DockerClient, name: str, timeout_s: float = REGISTRY_TIMEOUT_S) -> str:
    """Why the registry will not give `name`; "" where the engine says that it would.

    The engine itself asks (its mirrors and credentials count, not ours); it may take minutes
    where a firewall swallows packets, so the question is given up after `timeout_s`.
    """
    answer: list[str] = []
    pulling = threading.Event()

    def ask() -> None:
        try:
            client.images.get_registry_data(name)
            answer.append("")
        except failures.ENGINE_ERRORS as error:
            said = str(getattr(error, "explanation", None) or error)
            if "is not supported" in said or said.strip() == "Not Found":  # podman cannot ask, only try
                said = _pull_problem(client, name, pulling)
            answer.append(" ".join(said.split())[:200])

    thread = threading.Thread(target=ask, daemon=True, name="registry")
    thread.start()
    thread.join(timeout_s)
    if answer:
        return answer[0]
    return "" if pulling.is_set() else f"no answer from its registry in {timeout_s:g} s"


def _pull_problem(client: docker.DockerClient, name: str, pulling: threading.Event) -> str:
    """Pull it; why that failed. `pulling` is set once its registry has begun to give it."""
    try:
        for event in client.api.pull(name, stream=True, decode=True):
            if text := event.get("error"):
                return str(text)
            if not any(str(said).startswith("Trying to pull") for said in event.values()):
                pulling.set()
    except failures.ENGINE_ERRORS as error:
        return str(getattr(error, "explanation", None) or error)
    return ""


def facts(client: docker.DockerClient, image: Image, name: str, cache: Path) -> BaseFacts:
    """What Python the base holds; asked once per image, in a container without a network.

    Raises BuildFailed (`base_without_python`).
    """
    stored = cache / f"{str(image.id).partition(':')[2][:16]}.json"
    with contextlib.suppress(OSError, UnicodeDecodeError, ProtocolError):
        return from_json(BaseFacts, stored.read_text(encoding="utf-8"))
    status, said = ask(client, str(image.id), ["python3", "-I", "-c", _QUESTION])
    try:
        answer = from_json(BaseFacts, said.strip().splitlines()[-1])
    except (IndexError, ProtocolError):
        detail = said.strip().splitlines()[-1][:200] if said.strip() else f"exit status {status}"
        raise BuildFailed(
            Reason(
                code="base_without_python",
                text=f"the base image {name} has no usable `python3` ({detail}): take one with Python 3 "
                "and its venv module.",
            )
        ) from None
    cache.mkdir(parents=True, exist_ok=True)
    write_atomic(stored, to_json(answer))
    return answer


def ask(client: docker.DockerClient, image_id: str, command: list[str]) -> tuple[int, str]:
    """Run one short command in a container of an image; (exit status, what it printed).

    No network, nothing writable, no capability. The container is removed whatever happens.
    """
    container: Any = None
    try:
        container = client.containers.create(
            image_id,
            command,
            entrypoint="",
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            labels=leases.labels(""),  # one that a killed process left is swept by the next run
        )
        container.start()
        status = int(container.wait(timeout=60)["StatusCode"])
        return status, container.logs().decode(errors="replace")
    except DockerException as error:
        return 125, str(getattr(error, "explanation", None) or error)
    finally:
        if container is not None:
            with contextlib.suppress(*failures.ENGINE_ERRORS):
                container.remove(v=True, force=True)
