"""Did the kernel kill something for lack of memory? Its counters say so; a SIGKILL alone does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OomCounters:
    """Processes killed so far: in our control group (None: no counter), on the whole machine."""

    group: int | None
    machine: int | None

    def grew_since(self, before: OomCounters) -> bool:
        """Whether a process was killed for lack of memory in between."""
        return _grew(before.group, self.group) or _grew(before.machine, self.machine)


def read_counters(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> OomCounters:
    """The counters now: memory.events (cgroup v2) or memory.oom_control (v1), and /proc/vmstat."""
    group = None
    for folder in _folders(proc, cgroups):
        for name in ("memory.events", "memory.oom_control"):
            if (count := _field(folder / name, "oom_kill")) is not None:
                group = max(count, group or 0)
    return OomCounters(group=group, machine=_field(proc / "vmstat", "oom_kill"))


def memory_limit(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> int | None:
    """Bytes our control group may use; None where nothing below the machine's memory is set."""
    limits: list[int] = []
    for folder in _folders(proc, cgroups):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name).strip()
            if text.isdigit() and int(text) < 1 << 60:  # v1 says "unlimited" with a huge number
                limits.append(int(text))
    return min(limits, default=None)


def _folders(proc: Path, cgroups: Path) -> list[Path]:
    """Where our group's memory files may be: v1, v2 and hybrid, from the host and in a container.

    Inside a container the path in /proc/self/cgroup is often the host's; the mounted
    root is then our own group, so it is tried as well.
    """
    found = [cgroups, cgroups / "memory", cgroups / "unified"]
    for line in _read(proc / "self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        relative = path.strip().lstrip("/")
        if "memory" in controllers.split(","):
            found.append(cgroups / "memory" / relative)
        elif not controllers:
            found += [cgroups / relative, cgroups / "unified" / relative]
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def _field(path: Path, name: str) -> int | None:
    for line in _read(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _grew(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before
