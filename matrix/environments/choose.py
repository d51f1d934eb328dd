"""Which backend is taken, and the sentence that says so and why."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from matrix.catalog.types import Framework
from matrix.environments.base import Backend, BuildFailed, BuiltEnvironment, Progress, no_session, quiet
from matrix.environments.cutoff import CutOff
from matrix.environments.host import HostBackend
from matrix.environments.venv import VenvBackend
from matrix.records import Environment
from matrix_adapters.protocol import Reason

Asked = Literal["auto", "docker", "venv", "host"]
ENGINE_TIMEOUT_S = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """A backend, and why it was taken."""

    backend: Backend
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """Whether a container engine answers, and what it or the attempt said."""

    answers: bool
    said: str


class Containers(Protocol):
    """What `matrix.environments.docker.Setup` does once an engine answers."""

    def problem(self, timeout_s: float) -> str:
        """What is missing for images to be built, in words; "" for nothing."""

    def backend(self) -> Backend:
        """The backend."""


def choose(
    asked: Asked,
    frameworks: Mapping[str, Framework],
    home: Path,
    containers: Callable[[], Containers],
    *,
    engine: Callable[[], Engine] | None = None,
    cutoff: CutOff | None = None,
) -> Chosen:
    """`auto` takes containers where an engine answers and every base image can be had, within
    10 s; a backend that was named is never replaced by another.

    `cutoff` is for virtualenvs; what `containers` makes knows of it already.
    """
    if asked == "host":
        return Chosen(HostBackend(frameworks, home), "this interpreter, as asked (--backend host)")
    if asked == "venv":
        backend = VenvBackend(frameworks, home, cutoff=cutoff)
        return Chosen(backend, "virtualenvs, as asked (--backend venv)")
    deadline = time.monotonic() + ENGINE_TIMEOUT_S
    found = (engine or container_engine)()
    if asked == "docker":
        as_asked = "containers, as asked (--backend docker)"
        if not found.answers:
            said = f"{found.said}: start it, or use --backend venv"
            return Chosen(NoContainers(said), f"{as_asked}, but {said}")
        return Chosen(containers().backend(), f"{as_asked}: {found.said}")
    problem = found.said
    if found.answers:
        setup = containers()
        problem = setup.problem(deadline - time.monotonic())
        if not problem:
            return Chosen(setup.backend(), f"containers, because {found.said}")
        problem = f"{found.said}, but {problem}"
    return Chosen(VenvBackend(frameworks, home, cutoff=cutoff), f"virtualenvs, because {problem}")


def container_engine(timeout_s: float = ENGINE_TIMEOUT_S) -> Engine:
    """Ask the engine that the environment is set up for. Gives up after `timeout_s` seconds."""
    answer: list[Engine] = []

    def ask() -> None:
        answer.append(_ask_engine(timeout_s))

    thread = threading.Thread(target=ask, daemon=True, name="container engine")
    thread.start()
    thread.join(timeout_s)
    return answer[0] if answer else Engine(False, f"the container engine did not answer in {timeout_s:g} s")


class NoContainers:
    """`--backend docker` where no engine answers: every environment fails with the reason."""

    name: Literal["docker"] = "docker"

    def __init__(self, why: str) -> None:
        self._reason = Reason(code="no_containers", text=why)

    def build(
        self,
        environment: Environment,
        *,
        progress: Progress = quiet,
        cancelled: threading.Event | None = None,
    ) -> BuiltEnvironment:
        """Always raises BuildFailed."""
        raise BuildFailed(self._reason)

    def session(self, run: str) -> AbstractContextManager[None]:
        """Nothing is ever started."""
        return no_session(run)

    def close(self) -> None:
        """There is nothing to let go."""


def _ask_engine(timeout_s: float) -> Engine:
    import docker.errors  # heavy, and needed here only

    from matrix.execution import connect

    where = connect.described()
    try:
        client = connect.client(timeout_s)
        try:
            version = client.version().get("Version", "of unknown version")
        finally:
            client.close()
    except (docker.errors.DockerException, OSError) as error:
        said = f"no container engine answers at {where} ({_short(error)}{connect.advice(where)})"
        return Engine(False, said)
    return Engine(True, f"the container engine {version} answers at {where}")


def _short(error: BaseException) -> str:
    """The innermost cause, in one line; the outer ones repeat it with addresses of objects."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())[:160]
