"""Whose container is this, and does that process still live?

Every container carries a lease: machine, boot, process namespace, process id and its start.
A sweep removes what a dead process of this machine left behind. What a live one holds, and
what another machine put on a shared engine, it never touches.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import os
import platform
from pathlib import Path

import psutil

from matrix.execution.engine import ENGINE_ERRORS, Engine

RUN_LABEL = "org.framework-matrix.run"
LEASE_LABEL = "org.framework-matrix.lease"
CACHE_LABEL = "org.framework-matrix.cache"


class Holder(enum.Enum):
    """What is known of the process behind a lease."""

    US = "us"
    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@functools.cache
def own_lease() -> str:
    """The lease of this process."""
    return ":".join([_machine(), _boot(), _namespace(), str(os.getpid()), _start(os.getpid())])


def labels(run: str) -> dict[str, str]:
    """What every container of a run is marked with."""
    return {RUN_LABEL: run, LEASE_LABEL: own_lease()}


def holder(lease: str) -> Holder:
    """Who holds it. UNKNOWN for another machine, another container, and whatever cannot be read."""
    if lease == own_lease():
        return Holder.US
    parts = lease.split(":")
    if len(parts) != 5 or not parts[3].isdigit():
        return Holder.UNKNOWN
    machine, boot, namespace, pid, start = parts
    if machine != _machine():
        return Holder.UNKNOWN
    if boot != _boot():
        return Holder.DEAD
    if namespace != _namespace():
        return Holder.UNKNOWN
    return Holder.ALIVE if _start(int(pid)) == start else Holder.DEAD


def sweep(engine: Engine, *, run: str = "") -> list[str]:
    """Remove the containers of dead processes, and those of this process's `run`; their names.

    Anonymous volumes go with them. Never raises for the engine: what cannot be removed now
    is left to the next sweep.
    """
    removed: list[str] = []
    with contextlib.suppress(*ENGINE_ERRORS):
        for found in engine.api.containers(all=True, filters={"label": LEASE_LABEL}):
            marks = found["Labels"]
            who = holder(marks.get(LEASE_LABEL, ""))
            ours = who is Holder.US and bool(run) and marks.get(RUN_LABEL) == run
            if who is not Holder.DEAD and not ours:
                continue
            with contextlib.suppress(*ENGINE_ERRORS):
                engine.api.remove_container(found["Id"], v=True, force=True)
                removed += [name.lstrip("/") for name in found.get("Names") or [found["Id"]]]
    return removed


def any_alive(engine: Engine) -> bool:
    """Whether a container belongs to a run that lives, or may live, on whatever machine.

    Raises the errors of `Engine.calling`.
    """
    with engine.calling() as api:
        found = api.containers(all=True, filters={"label": LEASE_LABEL})
    return any(holder(c["Labels"].get(LEASE_LABEL, "")) is not Holder.DEAD for c in found)


@functools.cache
def _machine() -> str:
    """This installation under this name: images of virtual machines share their machine id."""
    return hashlib.sha256(f"{_text('/etc/machine-id')}\0{platform.node()}".encode()).hexdigest()[:12]


@functools.cache
def _boot() -> str:
    return _text("/proc/sys/kernel/random/boot_id").replace("-", "")[:12] or f"{psutil.boot_time():.0f}"


@functools.cache
def _namespace() -> str:
    """Process ids mean something inside one namespace only."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return "0"


def _start(pid: int) -> str:
    """When a process began, in a unit that no change of the clock touches; "" when there is none."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) > 19:
        return fields[19]
    try:
        return f"{psutil.Process(pid).create_time():.0f}"
    except psutil.Error:
        return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
