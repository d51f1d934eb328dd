"""How much CPU the control group grants this process, and how often it was stopped for it.

Both hierarchies are read: v2 (`cpu.max`) wins where both exist. A limit may sit on any
ancestor, so all levels up to the mount are looked at. In a container the path in
`/proc/self/cgroup` may be the host's; then the mount itself is our group.
Source: kernel documentation, admin-guide/cgroup-v2 and scheduler/sched-bwc.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

_ROOT = Path("/")


@dataclasses.dataclass(frozen=True, slots=True)
class Quota:
    """CPUs' worth of time that may be used: a number only where `kind` is "limited"."""

    kind: Literal["limited", "unlimited", "unknown"]
    cpus: float | None = None


def cpu_quota(root: Path = _ROOT) -> Quota:
    """The tightest quota over all levels. "unknown" when a file is there and cannot be understood."""
    for levels, read in ((_v2_levels(root), _quota_v2), (_v1_levels(root), _quota_v1)):
        found = [quota for level in levels if (quota := read(level)) is not None]
        limits = [quota.cpus for quota in found if quota.cpus is not None]
        if limits:
            return Quota("limited", min(limits))
        if found:
            return Quota("unknown" if any(quota.kind == "unknown" for quota in found) else "unlimited")
    return Quota("unlimited")


def usable_threads(affinity: int, quota: Quota) -> int:
    """min(affinity, floor(quota)), at least 1: rounding a quota up makes a lock-step pool stall."""
    if quota.cpus is None:
        return max(1, affinity)
    return max(1, min(affinity, math.floor(quota.cpus)))


def throttled(root: Path = _ROOT) -> int | None:
    """How often (`nr_throttled`, all levels) the quota has stopped the group so far; None: no counter."""
    for levels in (_v2_levels(root), _v1_levels(root)):
        counts = [count for level in levels if (count := _throttled(level / "cpu.stat")) is not None]
        if counts:
            return sum(counts)
    return None


def _quota_v2(level: Path) -> Quota | None:
    path = level / "cpu.max"
    if not path.exists():
        return None
    try:
        quota, period = path.read_text().split()
        return Quota("unlimited") if quota == "max" else Quota("limited", _share(quota, period))
    except (OSError, ValueError, ZeroDivisionError):
        return Quota("unknown")


def _quota_v1(level: Path) -> Quota | None:
    path = level / "cpu.cfs_quota_us"
    if not path.exists():
        return None
    try:
        quota = path.read_text().strip()
        if int(quota) < 0:
            return Quota("unlimited")
        return Quota("limited", _share(quota, (level / "cpu.cfs_period_us").read_text()))
    except (OSError, ValueError, ZeroDivisionError):
        return Quota("unknown")


def _share(quota: str, period: str) -> float:
    return int(quota) / int(period)


def _throttled(path: Path) -> int | None:
    try:
        fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines())
        return int(fields["nr_throttled"])
    except (OSError, ValueError, KeyError):
        return None


def _v2_levels(root: Path) -> list[Path]:
    path = next((p for controllers, p in _memberships(root) if not controllers), "/")
    mounts = (root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified")
    return [level for mount in mounts for level in _levels(mount, path)]


def _v1_levels(root: Path) -> list[Path]:
    path = next((p for controllers, p in _memberships(root) if "cpu" in controllers), "/")
    mounts = (root / "sys/fs/cgroup/cpu", root / "sys/fs/cgroup/cpu,cpuacct")
    return next((_levels(mount, path) for mount in mounts if mount.is_dir()), [])


def _memberships(root: Path) -> Iterator[tuple[list[str], str]]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        yield [name for name in controllers.split(",") if name], path


def _levels(mount: Path, path: str) -> list[Path]:
    """Our group and its ancestors up to the mount; the mount alone where our path is not visible."""
    own = mount / path.lstrip("/")
    if ".." in own.parts or not own.is_dir():
        own = mount
    ancestors = [own, *own.parents]
    return ancestors[: ancestors.index(mount) + 1]
