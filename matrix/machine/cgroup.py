"""The limits that a container or service manager set on this process, read from cgroup files.

Both versions; version 2 wins where both answer. A limit counts wherever it stands between
this process's group and the root. "unlimited" and "unknown" are different answers.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

UNLIMITED_V1_BYTES = 1 << 60  # version 1 says "no limit" as a number near 2^63

Known = Literal["limited", "unlimited", "unknown"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the groups allow. A number is None unless its state is "limited"."""

    version: int | None = None  # the one that answered for the CPU
    cpu: Known = "unknown"
    cpu_quota: float | None = None  # cores' worth of time
    memory: Known = "unknown"
    memory_bytes: int | None = None
    throttled_periods: int | None = None  # so far; None where it is not counted
    periods: int | None = None


def read_limits(proc: Path = Path("/proc"), mount: Path = Path("/sys/fs/cgroup")) -> Limits:
    """The limits of this process. Never raises: what cannot be read is unknown."""
    groups = _own_groups(proc)
    v2 = _ancestors(_v2_mount(mount), groups.get("", "/"))
    v1_cpu = _ancestors(mount / "cpu", groups.get("cpu", "/"))
    v1_memory = _ancestors(mount / "memory", groups.get("memory", "/"))
    version: int | None = 2
    cpu, quota = _least([_quota_v2(folder) for folder in v2])
    if cpu == "unknown":
        version = 1
        cpu, quota = _least([_quota_v1(folder) for folder in v1_cpu])
    if cpu == "unknown":
        version = None
    memory, limit = _least([_memory_v2(folder) for folder in v2])
    if memory == "unknown":
        memory, limit = _least([_memory_v1(folder) for folder in v1_memory])
    counters = _cpu_stat((v2 if version == 2 else v1_cpu)[:1])
    return Limits(
        version=version,
        cpu=cpu,
        cpu_quota=quota,
        memory=memory,
        memory_bytes=None if limit is None else int(limit),
        throttled_periods=counters.get("nr_throttled"),
        periods=counters.get("nr_periods"),
    )


_Answer = tuple[Known, float | None]


def _own_groups(proc: Path) -> dict[str, str]:
    """Controller -> path of this process's group; "" is version 2."""
    groups = {}
    for line in (_text(proc / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _v2_mount(mount: Path) -> Path:
    """The unified tree: the mount itself, or `unified` below it where both versions are mounted."""
    return mount / "unified" if (mount / "unified").is_dir() else mount


def _ancestors(root: Path, group: str) -> list[Path]:
    """The group's folder and all above it up to `root`. In a container the path may not exist there."""
    folder = root / group.strip("/")
    if not folder.is_dir():
        folder = root
    chain = [folder]
    while chain[-1] != root:
        chain.append(chain[-1].parent)
    return chain


def _least(answers: list[_Answer]) -> _Answer:
    """The tightest of the limits; unlimited where all that answered say so; unknown where none did."""
    limits = [value for known, value in answers if known == "limited" and value is not None]
    if limits:
        return "limited", min(limits)
    return ("unlimited", None) if any(known == "unlimited" for known, _ in answers) else ("unknown", None)


def _quota_v2(folder: Path) -> _Answer:
    text = _text(folder / "cpu.max")
    if text is None:
        # The root group has no such file, and no limit; it is known by its list of controllers.
        root_has_cpu = "cpu" in (_text(folder / "cgroup.controllers") or "").split()
        return ("unlimited", None) if root_has_cpu else ("unknown", None)
    quota, _, period = text.partition(" ")
    if quota == "max":
        return "unlimited", None
    try:
        return "limited", int(quota) / int(period or 100_000)
    except (ValueError, ZeroDivisionError):
        return "unknown", None


def _quota_v1(folder: Path) -> _Answer:
    try:
        quota = int(_text(folder / "cpu.cfs_quota_us") or "")
        if quota < 0:
            return "unlimited", None
        return "limited", quota / int(_text(folder / "cpu.cfs_period_us") or "")
    except (ValueError, ZeroDivisionError):
        return "unknown", None


def _memory_v2(folder: Path) -> _Answer:
    text = _text(folder / "memory.max")
    if text is None:
        root_has_memory = "memory" in (_text(folder / "cgroup.controllers") or "").split()
        return ("unlimited", None) if root_has_memory else ("unknown", None)
    return _bytes(text)


def _memory_v1(folder: Path) -> _Answer:
    return _bytes(_text(folder / "memory.limit_in_bytes") or "")


def _bytes(text: str) -> _Answer:
    if text == "max":
        return "unlimited", None
    try:
        value = int(text)
    except ValueError:
        return "unknown", None
    return ("unlimited", None) if value >= UNLIMITED_V1_BYTES else ("limited", float(value))


def _cpu_stat(folders: list[Path]) -> dict[str, int]:
    counters = {}
    for folder in folders:
        for line in (_text(folder / "cpu.stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if value.isdigit():
                counters[name] = int(value)
    return counters


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
