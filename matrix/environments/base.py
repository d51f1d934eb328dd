"""What every backend gives: a built environment that knows how to start a worker.

A backend has a `name` and one method, `build`. What it returns says everything that the
rest of the product needs: the command line and variables of a worker, what was really
installed, and what to distrust. What it raises is a reason, never a log to be read.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol, TypeVar

from matrix.records import Backend as BackendName
from matrix.records import Environment
from matrix_adapters.protocol import ASKED_VARIABLE, Flag, Reason, content_hash

_Built = TypeVar("_Built")
_Made_co = TypeVar("_Made_co", covariant=True)

Progress = Callable[[str], None]
"""Called with a short sentence: what a build is doing now."""

# What would change the interpreter that a worker runs in, or let code from outside into it.
FOREIGN_PREFIXES = ("PYTHON", "VIRTUAL_ENV", "CONDA_", "__PYVENV_LAUNCHER__")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuiltEnvironment:
    """An environment that a worker can be started in."""

    environment: Environment
    backend: BackendName
    key: str  # content key: equal keys mean equal instructions, not equal machines
    python: Path  # the interpreter that runs the worker
    python_version: str
    worker_path: Path  # the folder that holds `matrix_adapters`, and nothing else
    import_path: tuple[str, ...] = ()  # more folders, where packages were installed that way
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)  # `env:` of its changes
    lock: tuple[str, ...]  # what is really installed, "name==version", sorted
    size_bytes: int | None = None
    flags: tuple[Flag, ...] = ()
    seconds: float = 0.0  # what `build` took, a reused environment included
    reused: bool = False
    notes: tuple[str, ...] = ()  # e.g. "index ... skipped: no answer in 2 s"
    log: Path | None = None

    def command(self, in_dir: Path, out_dir: Path) -> list[str]:
        """The command line of one worker. `-P` keeps the current folder off the import path."""
        return [str(self.python), "-P", "-m", "matrix_adapters.worker", str(in_dir), str(out_dir)]

    def environ(self) -> dict[str, str]:
        """The worker's whole environment: this process's, less what would change its interpreter."""
        path = os.pathsep.join([str(self.worker_path), *self.import_path])
        return {**clean_environ(), **asked_for(self.variables), "PYTHONPATH": path}


class BuildFailed(Exception):
    """An environment that could not be had; its cells are `build_failed` with this reason."""

    def __init__(self, reason: Reason, log: Path | None = None) -> None:
        super().__init__(reason.text)
        self.reason = reason
        self.log = log


class BuildCancelled(Exception):
    """The build was told to stop; nothing of it is left."""


class Builder(Protocol[_Made_co]):
    """Whatever makes one thing per environment: backends, and what makes images."""

    def build(
        self,
        environment: Environment,
        *,
        progress: Progress = ...,
        cancelled: threading.Event | None = None,
    ) -> _Made_co:
        """Build, or reuse. Raises BuildFailed, or BuildCancelled when `cancelled` was set."""


class Backend(Protocol):
    """One way to realise environments."""

    @property
    def name(self) -> BackendName:
        """The word of `--backend`."""

    def build(
        self,
        environment: Environment,
        *,
        progress: Progress = ...,
        cancelled: threading.Event | None = None,
    ) -> BuiltEnvironment:
        """Build, or reuse. Raises BuildFailed, or BuildCancelled when `cancelled` was set."""

    def session(self, run: str) -> AbstractContextManager[None]:
        """Around everything of a run. What dead runs left running goes first, what this one left last."""

    def close(self) -> None:
        """Let `matrix clean` remove what this backend returned. The end of the process does it too."""


def no_session(_: str) -> AbstractContextManager[None]:
    """The session of a backend whose launches end with this process: nothing is ever left."""
    return nullcontext()


def quiet(_: str) -> None:
    """The progress callback that says nothing."""


def build_all(
    backend: Builder[_Built],
    environments: Sequence[Environment],
    *,
    jobs: int = 3,
    progress: Callable[[Environment, str], None] = lambda _, __: None,
) -> dict[Environment, _Built | BuildFailed]:
    """Build them side by side; one that fails does not stop the others.

    Each build stays in the thread that started it. On Ctrl-C, or anything else that ends
    the wait, running builds are cancelled and removed before the exception goes on.
    """
    cancelled = threading.Event()
    results: dict[Environment, _Built | BuildFailed] = {}

    def one(environment: Environment) -> _Built | BuildFailed:
        if cancelled.is_set():
            raise BuildCancelled
        try:
            return backend.build(
                environment, progress=lambda text: progress(environment, text), cancelled=cancelled
            )
        except BuildFailed as failure:
            progress(environment, f"failed: {failure.reason.text}")
            return failure

    unique = list(dict.fromkeys(environments))
    with ThreadPoolExecutor(max_workers=max(1, jobs), thread_name_prefix="build") as pool:
        futures: dict[Future[_Built | BuildFailed], Environment] = {}
        try:
            for environment in unique:
                futures[pool.submit(one, environment)] = environment
            wait(futures)
        except BaseException:
            cancelled.set()
            raise
    for future, environment in futures.items():
        results[environment] = future.result()
    return results


def asked_for(variables: Mapping[str, str]) -> dict[str, str]:
    """`variables` for a worker, with their names: it refuses where its adapter would override one."""
    return {**variables, ASKED_VARIABLE: " ".join(sorted(variables))} if variables else {}


def with_variables(key: str, variables: Mapping[str, str]) -> str:
    """The content key of what `key` names when its workers have these variables besides."""
    return content_hash([key, dict(variables)]) if variables else key


def clean_environ(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """`base` (this process's environment) without what steers Python itself."""
    source = os.environ if base is None else base
    return {name: value for name, value in source.items() if not name.startswith(FOREIGN_PREFIXES)}
