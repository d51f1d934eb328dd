"""How the containers of one environment are made: what differs between environments, and what never does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker.types

WORKER = "/worker"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How the containers of one environment are made."""

    image: str  # the engine's id: a tag may move
    python: str  # the interpreter in the image
    worker: Path  # the staged sources on the host
    run: str = ""
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)
    memory_bytes: int | None = None
    cpuset: str = ""  # cores, as the engine's host counts them; "" for all
    pids: int = 4096
    shm_bytes: int | None = None
    devices: tuple[str, ...] = ()  # nodes of the engine's host
    groups: tuple[str, ...] = ()  # group ids that may open them
    device_requests: tuple[Mapping[str, Any], ...] = ()  # as `docker.types.DeviceRequest` takes them
    mounts: tuple[str, ...] = ()  # the driver's own files, read-only


def environ(plan: Plan) -> dict[str, str]:
    """The variables of a launch, beside those of the image."""
    return {"HOME": "/tmp", "TMPDIR": "/tmp", "USER": "matrix", **plan.environ, "PYTHONPATH": WORKER}  # noqa: S108


def host_config(api: Any, plan: Plan, mounts: list[docker.types.Mount]) -> dict[str, Any]:
    """The same limits for every launch: no network, no root to write, no capabilities, no swap."""
    driver = [docker.types.Mount(target=p, source=p, type="bind", read_only=True) for p in plan.mounts]
    config: dict[str, Any] = api.create_host_config(
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "rw,nosuid,nodev,exec,mode=1777"},  # noqa: S108 - frameworks load what they compile
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=plan.pids,
        mem_limit=plan.memory_bytes,
        memswap_limit=plan.memory_bytes,  # no swap: a cell that needs more is out of memory
        cpuset_cpus=plan.cpuset or None,
        shm_size=plan.shm_bytes,
        devices=[f"{node}:{node}:rw" for node in plan.devices] or None,
        group_add=list(plan.groups) or None,
        device_requests=[docker.types.DeviceRequest(**r) for r in plan.device_requests] or None,
        mounts=[*mounts, *driver],
        log_config=docker.types.LogConfig(type="json-file", config={"max-size": "1m"}),
    )
    return config
