"""Backend `docker`: one image per framework, version and hardware; one fresh container per launch.

The engine may be anywhere the Docker SDK reaches (a socket, `ssh://`, podman's socket): nothing
is shared with it but its API.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import docker
import docker.errors

from matrix.catalog.types import ContainerFacts, Framework, Hardware
from matrix.environments import changes
from matrix.environments.base import (
    BuildFailed,
    BuiltEnvironment,
    Progress,
    asked_for,
    quiet,
    with_variables,
)
from matrix.environments.bundle import Bundle, third_party_sources
from matrix.environments.images import BuiltImage, ImageOptions, base, ensure_image, sources
from matrix.execution import connect, leases
from matrix.execution.cancel import Cancel
from matrix.execution.container import Plan, open_in_container, run_in_container
from matrix.execution.engine import Engine, Refused, Silent
from matrix.execution.talk import Live
from matrix.execution.volumes import Volumes
from matrix.records import Environment
from matrix_adapters.protocol import Reason, Result, Task

#: of the engine's memory, for one launch: what takes all of it takes the machine with it
MEMORY_SHARE = 0.9
#: an engine under load may think for long; how long a launch may take is none of its business
ENGINE_TIMEOUT_S = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContainerEnvironment(BuiltEnvironment):
    """An image, and how its containers are made. `python` is a path inside the image."""

    plan: Plan
    engine: Engine
    volumes: Volumes

    def run_task(
        self,
        task: Task,
        folder: Path,
        *,
        timeout_s: float,
        stall_s: float,
        on_phase: Callable[[str], None] | None = None,
        cancel: Cancel | None = None,
        out_dir: Path | None = None,
    ) -> Result:
        """One launch; see `matrix.execution.container.run_in_container`."""
        return run_in_container(
            self.plan,
            self.engine,
            self.volumes,
            task,
            folder,
            timeout_s=timeout_s,
            stall_s=stall_s,
            on_phase=on_phase,
            cancel=cancel,
            out_dir=out_dir,
        )

    def open_live(
        self,
        task: Task,
        folder: Path,
        *,
        timeout_s: float,
        stall_s: float,
        cancel: Cancel | None = None,
    ) -> contextlib.AbstractContextManager[Live]:
        """One half of a live pair; see `matrix.execution.container.open_in_container`."""
        return open_in_container(
            self.plan,
            self.engine,
            self.volumes,
            task,
            folder,
            timeout_s=timeout_s,
            stall_s=stall_s,
            cancel=cancel,
        )


class DockerBackend:
    """Builds images through the engine's API and runs every launch in a container of its own."""

    name: Literal["docker"] = "docker"

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        hardware: Mapping[str, Hardware],
        home: Path,
        client: docker.DockerClient,
        *,
        options: ImageOptions | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self._frameworks, self._hardware, self._home = frameworks, hardware, home
        self._options, self._memory = options, memory_bytes
        self._bundle = Bundle(home, third_party_sources(frameworks))
        self._run = ""
        self.engine = Engine(client)
        self._volumes = Volumes(self.engine, home, "")

    def build(
        self,
        environment: Environment,
        *,
        progress: Progress = quiet,
        cancelled: threading.Event | None = None,
    ) -> ContainerEnvironment:
        """Reuse the image, or build it. Raises BuildFailed with the reasons of `ensure_image`."""
        image = ensure_image(
            self.engine.client,
            self._frameworks[environment.framework],
            environment,
            home=self._home,
            options=self._options,
            progress=progress,
            cancelled=cancelled,
        )
        return self._environment(image)

    @contextlib.contextmanager
    def session(self, run: str) -> Iterator[None]:
        """Around a run: what dead runs left behind goes first, what is left of this one at the end."""
        self._run = run
        self._volumes = Volumes(self.engine, self._home, run)
        leases.sweep(self.engine)
        try:
            yield
        finally:
            leases.sweep(self.engine, run=run)

    def close(self) -> None:
        """Let `matrix clean` remove the staged worker sources, and the engine go."""
        self._bundle.close()
        self.engine.client.close()

    def _environment(self, image: BuiltImage) -> ContainerEnvironment:
        try:
            plan = self._plan(image)
        except Refused as refused:
            raise BuildFailed(refused.reason, image.log) from refused
        except Silent as silent:
            reason = Reason(code="engine_lost", text=f"the container engine was lost: {silent}")
            raise BuildFailed(reason, image.log) from silent
        variables = changes.of(image.environment.changes).environ
        return ContainerEnvironment(
            environment=image.environment,
            backend=self.name,
            key=with_variables(image.key, variables),
            python=Path(image.python),
            python_version=image.python_version,
            worker_path=plan.worker,
            lock=image.lock,
            size_bytes=image.size_bytes,
            flags=image.flags,
            seconds=image.seconds,
            reused=image.reused,
            notes=image.notes,
            log=image.log,
            variables=variables,
            plan=plan,
            engine=self.engine,
            volumes=self._volumes,
        )

    def _plan(self, image: BuiltImage) -> Plan:
        facts = self._hardware[image.environment.hardware].container
        wanted = changes.of(image.environment.changes)
        devices = nodes(facts) if self._is_local() else facts.device_nodes
        return Plan(
            image=image.id,
            python=image.python,
            worker=self._bundle.stage(),
            run=self._run,
            environ={**facts.environment, **asked_for(wanted.environ)},
            memory_bytes=self._memory or self._memory_of_engine(),
            cpuset=own_cores() if self._is_local() else "",
            shm_bytes=facts.shm_bytes,
            devices=tuple(devices),
            groups=groups_of(devices) if facts.groups_of_nodes else (),
            device_requests=_requests(facts),
            mounts=tuple(facts.mounts),
        )

    def _is_local(self) -> bool:
        return connect.is_local(self.engine.client)

    def _memory_of_engine(self) -> int | None:
        with self.engine.calling() as api:
            total = int(api.info().get("MemTotal") or 0)
        return int(total * MEMORY_SHARE) or None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """Everything to begin with once an engine answers; for `choose`."""

    frameworks: Mapping[str, Framework]
    hardware: Mapping[str, Hardware]
    home: Path
    environments: tuple[Environment, ...] = ()  # what a run will need
    options: ImageOptions = dataclasses.field(default_factory=ImageOptions)

    def problem(self, timeout_s: float) -> str:
        """The first base image that is neither on the engine nor to be had from a registry, and why."""
        deadline = time.monotonic() + timeout_s
        with contextlib.closing(connect.client(ENGINE_TIMEOUT_S)) as client:
            for name in dict.fromkeys(self._bases()):
                with contextlib.suppress(docker.errors.ImageNotFound):
                    client.images.get(name)
                    continue
                left = max(1.0, deadline - time.monotonic())
                if said := base.registry_problem(client, name, left):
                    return f"the base image {name} is not there and cannot be pulled ({said})"
        return ""

    def backend(self) -> DockerBackend:
        """The backend, with a client of its own."""
        client = connect.client(ENGINE_TIMEOUT_S)
        return DockerBackend(self.frameworks, self.hardware, self.home, client, options=self.options)

    def _bases(self) -> Iterator[str]:
        for environment in self.environments:
            # What has no image at all is a failed build of that environment, not of all.
            with contextlib.suppress(BuildFailed):
                if own := changes.of(environment.changes).base:
                    yield own
                    continue
                source = sources.source(self.frameworks[environment.framework], environment.hardware)
                yield base.reference(source, self.options.bases)


def nodes(facts: ContainerFacts) -> list[str]:
    """The device nodes of this machine that a profile wants; one that must be there stays, found or not."""
    found: list[str] = []
    for pattern in facts.device_nodes:
        found += sorted(glob.glob(pattern)) or [pattern]  # noqa: PTH207 - patterns are absolute
    for pattern in facts.optional_nodes:
        found += sorted(glob.glob(pattern))  # noqa: PTH207
    return list(dict.fromkeys(found))


def groups_of(devices: list[str]) -> tuple[str, ...]:
    """The numbers of the groups that own the nodes: their names mean nothing inside an image."""
    found = set()
    for node in devices:
        with contextlib.suppress(OSError):
            found.add(Path(node).stat().st_gid)
    return tuple(str(gid) for gid in sorted(found - {0}))


def own_cores() -> str:
    """The cores that this process may use, where those are not all of them; "" else."""
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is None:
        return ""
    cores = sorted(affinity(0))
    return "" if len(cores) == os.cpu_count() else ",".join(map(str, cores))


def _requests(facts: ContainerFacts) -> tuple[Mapping[str, Any], ...]:
    wanted = facts.device_request
    if wanted is None:
        return ()
    request: dict[str, Any] = {"capabilities": [wanted.capabilities]}
    if wanted.driver:
        request["driver"] = wanted.driver
    if wanted.device_ids:
        request["device_ids"] = wanted.device_ids
    else:
        request["count"] = -1
    return (request,)
