"""How busy the machine is, beside a run's own times: what others took from it.

A snapshot is a few counters; what happened between two of them is a `LoadBetween`.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import psutil

from matrix.machine.cgroup import read_limits

PROC = Path("/proc")
SYS = Path("/sys")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LoadSnapshot:
    """The machine at one moment. Times in seconds, sizes in bytes; None where nobody says."""

    at: float  # time.time()
    load_average: tuple[float, float, float] | None  # 1, 5 and 15 minutes
    pressure: dict[str, float | None]  # cpu, memory, io: % of the last 10 s in which something waited
    cpu_busy_s: float  # of all CPUs together, since the machine started
    cpu_idle_s: float
    cpu_steal_s: float | None  # time that the hypervisor gave to others
    memory_available: int
    swap_used: int | None
    throttled_periods: int | None  # by the cgroup's quota
    thermal_throttles: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LoadBetween:
    """What happened between two snapshots. Shares are of all CPUs' time, 0 to 1."""

    seconds: float
    busy: float | None
    steal: float | None
    throttled_periods: int | None
    thermal_throttles: int | None

    @property
    def text(self) -> str:
        """One line for a report: "CPUs 63 % busy, 0.4 % stolen"."""
        parts = []
        if self.busy is not None:
            parts.append(f"CPUs {self.busy:.0%} busy")
        if self.steal is not None:
            parts.append(f"{self.steal:.1%} stolen")
        if self.throttled_periods:
            parts.append(f"throttled by the quota in {self.throttled_periods} periods")
        if self.thermal_throttles:
            parts.append(f"throttled by temperature {self.thermal_throttles} times")
        return ", ".join(parts) or "no load figures on this system"


def snapshot() -> LoadSnapshot:
    """Takes about a millisecond."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    steal = getattr(times, "steal", None)
    # guest time is counted in user time already
    busy = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
    try:
        load: tuple[float, float, float] | None = psutil.getloadavg()
    except OSError:
        load = None
    try:
        swap: int | None = psutil.swap_memory().used
    except (OSError, RuntimeError):
        swap = None
    return LoadSnapshot(
        at=time.time(),
        load_average=load,
        pressure={kind: pressure(kind) for kind in ("cpu", "memory", "io")},
        cpu_busy_s=busy,
        cpu_idle_s=idle,
        cpu_steal_s=steal,
        memory_available=psutil.virtual_memory().available,
        swap_used=swap,
        throttled_periods=read_limits().throttled_periods,
        thermal_throttles=thermal_throttles(),
    )


def between(before: LoadSnapshot, after: LoadSnapshot) -> LoadBetween:
    """The difference of two snapshots, the earlier one first."""
    busy = after.cpu_busy_s - before.cpu_busy_s
    total = busy + after.cpu_idle_s - before.cpu_idle_s
    stolen = None
    if after.cpu_steal_s is not None and before.cpu_steal_s is not None and total > 0:
        stolen = _share(after.cpu_steal_s - before.cpu_steal_s, total)
    return LoadBetween(
        seconds=after.at - before.at,
        busy=_share(busy, total) if total > 0 else None,
        steal=stolen,
        throttled_periods=_grown(before.throttled_periods, after.throttled_periods),
        thermal_throttles=_grown(before.thermal_throttles, after.thermal_throttles),
    )


def pressure(kind: str, proc: Path = PROC) -> float | None:
    """Share of the last 10 s, in %, in which some task waited for `kind` (cpu, memory or io)."""
    try:
        text = (proc / "pressure" / kind).read_text(encoding="ascii")
        some = next(line for line in text.splitlines() if line.startswith("some "))
        return float(some.partition("avg10=")[2].split()[0])
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def thermal_throttles(sys_folder: Path = SYS) -> int | None:
    """How often a core was slowed down by its temperature since the machine started."""
    counts = []
    for file in (sys_folder / "devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
        try:
            counts.append(int(file.read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return sum(counts) if counts else None


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
