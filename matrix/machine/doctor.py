"""What would spoil a measurement on this machine, each with what can be done about it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from matrix.machine.fingerprint import Machine
from matrix.machine.load import LoadSnapshot

FREE_BYTES_WANTED = 8e9  # the default sweep with everything, and some room
MEMORY_WANTED = 6e9
BUSY_LOAD = 0.3  # runnable tasks per usable thread before we start anything
PRESSURE_PERCENT = 10.0
STEAL_SHARE = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class Spoiler:
    """Something to know before a number is believed."""

    code: str
    text: str


def warnings(machine: Machine, load: LoadSnapshot, home: Path) -> list[Spoiler]:
    """All that applies, most telling first. Reads nothing but the free space at `home`."""
    return [*_load(machine, load), *_limits(machine), *_clock(machine, load), *_room(machine, load, home)]


def _load(machine: Machine, load: LoadSnapshot) -> list[Spoiler]:
    found = []
    if load.load_average and load.load_average[0] > BUSY_LOAD * machine.usable_threads:
        found.append(
            Spoiler(
                "load_high",
                f"load average {load.load_average[0]:.1f} on {machine.usable_threads} usable threads: "
                "something else is running. Times will be longer and noisier; stop it, or wait.",
            )
        )
    waiting = [
        f"{kind} {value:.0f} %" for kind, value in load.pressure.items() if (value or 0) > PRESSURE_PERCENT
    ]
    if waiting:
        found.append(
            Spoiler(
                "pressure", f"tasks had to wait in the last 10 s ({', '.join(waiting)}): the machine is busy."
            )
        )
    if load.load_average is None:
        found.append(Spoiler("load_unknown", "this system gives no load average: other load goes unseen."))
    return found


def _limits(machine: Machine) -> list[Spoiler]:
    found = []
    limits = machine.limits
    if limits.cpu == "unknown":
        found.append(
            Spoiler(
                "cgroup_unknown", "no cgroup files can be read: a CPU quota, if there is one, goes unseen."
            )
        )
    elif limits.cpu_quota is not None:
        found.append(
            Spoiler(
                "cpu_quota",
                f"a CPU quota of {limits.cpu_quota:g} cores applies: {machine.usable_threads} threads are "
                "used. A quota stops all threads at once when it is spent; a CPU set measures more steadily.",
            )
        )
    if limits.throttled_periods:
        found.append(
            Spoiler(
                "quota_throttled", f"the quota has stopped this group in {limits.throttled_periods} periods."
            )
        )
    if machine.affinity is not None and machine.logical_cpus and len(machine.affinity) < machine.logical_cpus:
        found.append(
            Spoiler(
                "affinity",
                f"this process may use {len(machine.affinity)} of {machine.logical_cpus} CPUs: "
                "the others' load is shared through caches and memory all the same.",
            )
        )
    if len(machine.numa_nodes) > 1:
        found.append(
            Spoiler(
                "numa",
                f"{len(machine.numa_nodes)} memory nodes: bind the run to one (`numactl --cpunodebind=0 "
                "--membind=0 matrix run`), or times may have two values.",
            )
        )
    return found


def _clock(machine: Machine, load: LoadSnapshot) -> list[Spoiler]:
    found = []
    slow = [name for name in machine.governors if name in ("powersave", "ondemand", "conservative")]
    if slow and "performance" not in machine.governors:
        found.append(
            Spoiler(
                "governor",
                f"the frequency governor is {', '.join(slow)}: clocks follow the load. "
                "`cpupower frequency-set -g performance` keeps them up.",
            )
        )
    if load.thermal_throttles:
        found.append(
            Spoiler(
                "thermal",
                f"cores were slowed down by heat {load.thermal_throttles} times since the machine started.",
            )
        )
    if machine.hypervisor:
        found.append(
            Spoiler(
                "virtual",
                "this is a virtual machine: its host's other guests can take time from it, and counters for "
                "frequency and energy are usually missing.",
            )
        )
    if machine.boost:
        found.append(
            Spoiler(
                "turbo",
                "turbo is on: the clock depends on temperature and on how many cores work. Switch it off "
                "(below /sys/devices/system/cpu: 1 into intel_pstate/no_turbo, or 0 into cpufreq/boost).",
            )
        )
    if machine.huge_pages == "always":
        found.append(
            Spoiler(
                "huge_pages",
                "transparent huge pages are `always`: whether memory gets them depends on what ran before. "
                "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` leaves it to the frameworks.",
            )
        )
    stolen = _stolen(load)
    if stolen > STEAL_SHARE:
        found.append(
            Spoiler(
                "steal",
                f"{stolen:.1%} of this machine's CPU time was given to other guests since it started: take a "
                "host without overcommitted cores, or more launches.",
            )
        )
    return found


def _stolen(load: LoadSnapshot) -> float:
    """Share of all CPU time since the machine started; 0 where nobody says."""
    total = load.cpu_busy_s + load.cpu_idle_s
    return (load.cpu_steal_s or 0.0) / total if total > 0 else 0.0


def _room(machine: Machine, load: LoadSnapshot, home: Path) -> list[Spoiler]:
    found = []
    free = shutil.disk_usage(home).free
    if free < FREE_BYTES_WANTED:
        found.append(
            Spoiler(
                "disk",
                f"{free / 1e9:.1f} GB free at {home}: the default sweep wants up to 6 GB. `matrix clean` "
                "lists what the cache holds; FRAMEWORK_MATRIX_HOME moves it.",
            )
        )
    limit = min(load.memory_available, machine.limits.memory_bytes or load.memory_available)
    if limit < MEMORY_WANTED:
        found.append(
            Spoiler("memory", f"{limit / 1e9:.1f} GB of memory available: the larger models may not fit.")
        )
    if load.swap_used:
        found.append(
            Spoiler("swap", f"{load.swap_used / 1e9:.1f} GB are swapped out: memory is or was short.")
        )
    return found
