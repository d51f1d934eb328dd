"""What a container engine says of itself, and what about it would spoil a run."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker

from matrix.catalog.types import ContainerFacts, Hardware
from matrix.execution import connect
from matrix.machine.doctor import Spoiler
from matrix.machine.hardware import HardwareFound

FREE_BYTES_WANTED = 12e9  # the three CPU images of the default sweep while they are built
_PODMAN = "Podman Engine"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class EngineFacts:
    """One engine. Sizes in bytes; None where it does not say."""

    kind: str  # "docker" or "podman"
    version: str
    api: str
    local: bool  # on this machine, as far as the address tells
    system: str  # the engine's host
    storage_driver: str
    storage_folder: str
    storage_free_bytes: int | None  # seen on a local engine only
    cgroup_version: str
    cgroup_driver: str
    cpus: int | None
    memory_bytes: int | None
    cpuset: bool | None  # whether containers can be kept on chosen cores
    memory_limit: bool | None
    runtimes: tuple[str, ...]
    cdi: tuple[str, ...]  # devices that it knows by name
    rootless: bool


def read(client: docker.DockerClient) -> EngineFacts:
    """Ask it. Raises the SDK's errors."""
    info: dict[str, Any] = client.info()
    version: dict[str, Any] = client.version()
    local = connect.is_local(client)
    folder = str(info.get("DockerRootDir") or "")
    parts = [str(part.get("Name")) for part in version.get("Components") or ()]
    return EngineFacts(
        kind="podman" if _PODMAN in parts else "docker",
        version=str(version.get("Version") or "unknown"),
        api=str(version.get("ApiVersion") or "unknown"),
        local=local,
        system=str(info.get("OperatingSystem") or ""),
        storage_driver=str(info.get("Driver") or "unknown"),
        storage_folder=folder,
        storage_free_bytes=_free(folder) if local else None,
        cgroup_version=str(info.get("CgroupVersion") or "1"),  # engines before 20.10 knew no other
        cgroup_driver=str(info.get("CgroupDriver") or "unknown"),
        cpus=info.get("NCPU"),
        memory_bytes=info.get("MemTotal"),
        cpuset=info.get("CPUSet"),
        memory_limit=info.get("MemoryLimit"),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        cdi=tuple(sorted(str(d.get("ID")) for d in info.get("DiscoveredDevices") or ())),
        rootless=any("rootless" in str(option) for option in info.get("SecurityOptions") or ()),
    )


def devices(facts: EngineFacts, profiles: Mapping[str, Hardware]) -> dict[str, HardwareFound]:
    """Profile -> whether the engine can hand its devices to a container, as far as can be seen."""
    return {name: _device(facts, profile) for name, profile in profiles.items()}


def spoilers(facts: EngineFacts) -> list[Spoiler]:
    """What would spoil a run on this engine, and what to do about it."""
    found = []
    free = facts.storage_free_bytes
    if free is not None and free < FREE_BYTES_WANTED:
        found.append(
            Spoiler(
                "engine_disk",
                f"{free / 1e9:.1f} GB free at {facts.storage_folder}: the default sweep's images take up to "
                "12 GB while they are built. `matrix images prune` and `docker system df` show what goes.",
            )
        )
    if facts.cpuset is False:
        found.append(
            Spoiler("engine_cpuset", "the engine cannot keep containers on chosen cores: times will vary.")
        )
    if facts.memory_limit is False:
        found.append(
            Spoiler(
                "engine_memory",
                "the engine cannot limit memory: a cell that takes too much takes the machine with it.",
            )
        )
    if facts.storage_driver == "vfs":
        found.append(
            Spoiler(
                "engine_storage", "storage driver vfs copies every layer whole: builds are slow and large."
            )
        )
    if facts.kind == "podman":
        found.append(
            Spoiler(
                "engine_podman",
                "podman ignores requests for GPUs and flags no lack of memory: both are found from inside.",
            )
        )
    return found


def _device(facts: EngineFacts, profile: Hardware) -> HardwareFound:
    wanted = profile.container
    if profile.always:
        return HardwareFound(True, f"{profile.title}: {facts.cpus or 'some'} cores")
    if wanted.device_request is not None:
        return _requested(facts, profile, wanted)
    if not facts.local:
        return HardwareFound(False, f"{profile.title}: a remote engine's nodes cannot be seen from here")
    missing = [node for node in wanted.device_nodes if not glob.glob(node)]  # noqa: PTH207  (absolute)
    if missing:
        return HardwareFound(False, f"no {profile.title}: {', '.join(missing)} not on the engine's host")
    return HardwareFound(True, f"{profile.title}: {', '.join(wanted.device_nodes)}")


def _requested(facts: EngineFacts, profile: Hardware, wanted: ContainerFacts) -> HardwareFound:
    request = wanted.device_request
    assert request is not None  # noqa: S101  (the caller looked)
    vendor = request.driver or profile.name
    known = [name for name in (*facts.runtimes, *facts.cdi) if vendor in name]
    if facts.kind == "podman" and not facts.cdi:
        return HardwareFound(False, f"{profile.title}: podman would ignore the request")
    if known:
        return HardwareFound(True, f"{profile.title}: the engine has {', '.join(known)}")
    return HardwareFound(
        False, f"no {profile.title}: the engine has no runtime or device of {vendor}; {profile.driver}"
    )


def _free(folder: str) -> int | None:
    """Free space where the engine keeps its images; the folder itself is often root's alone."""
    for place in (Path(folder), *Path(folder).parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(place).free
    return None
