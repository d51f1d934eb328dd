"""What this machine is: the fingerprint that a run stores, and how many threads fit.

Small functions named after what they read. Everything may be missing: another system, a
container without `/sys`, a file that may not be read; then the field is None.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from matrix.machine.cgroup import Limits, read_limits
from matrix_adapters.protocol import content_hash

PROC = Path("/proc")
SYS = Path("/sys")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """One host. Sizes in bytes, frequencies in MHz."""

    identity: str  # hash of what makes two machines comparable, and of which machine it is
    cpu_model: str | None
    cpu_flags: tuple[str, ...]
    architecture: str
    logical_cpus: int | None
    physical_cores: int | None
    affinity: tuple[int, ...] | None  # the logical CPUs this process may use
    usable_threads: int
    limits: Limits
    memory_bytes: int | None
    swap_bytes: int | None
    numa_nodes: tuple[str, ...]  # the CPU list of each
    smt: bool | None
    governors: tuple[str, ...]
    boost: bool | None
    frequency_mhz: tuple[float, float] | None  # least and most that the CPU may run at
    huge_pages: str | None  # transparent huge pages: always, madvise, never
    kernel: str
    system: str  # e.g. "Debian GNU/Linux 12 (bookworm)"
    libc: str
    python: str
    hypervisor: str | None
    container: str | None


def usable_threads() -> int:
    """Threads that can really run at once: min(affinity, floor(quota)), at least 1."""
    return _fitting(affinity(), read_limits())


@functools.cache
def fingerprint() -> Machine:
    """Read it all, once per process."""
    limits = read_limits()
    cpus = affinity()
    model, flags = cpu_model(), cpu_flags()
    memory = psutil.virtual_memory().total
    return Machine(
        identity=content_hash(
            [host_id(), model, flags, os.cpu_count(), memory, _fitting(cpus, limits), limits.cpu, SYSTEM]
        ),
        cpu_model=model,
        cpu_flags=flags,
        architecture=platform.machine(),
        logical_cpus=os.cpu_count(),
        physical_cores=psutil.cpu_count(logical=False),
        affinity=cpus,
        usable_threads=_fitting(cpus, limits),
        limits=limits,
        memory_bytes=memory,
        swap_bytes=_swap(),
        numa_nodes=numa_nodes(),
        smt=_switch(SYS / "devices/system/cpu/smt/active"),
        governors=governors(),
        boost=boost(),
        frequency_mhz=frequency_range(),
        huge_pages=huge_pages(),
        kernel=f"{platform.system()} {platform.release()}",
        system=system_name(),
        libc=" ".join(platform.libc_ver()).strip(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        hypervisor=hypervisor(),
        container=container(),
    )


SYSTEM = sys.platform


def affinity() -> tuple[int, ...] | None:
    """The logical CPUs that this process may use; None where the system cannot say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return tuple(sorted(os.sched_getaffinity(0)))


def host_id() -> str:
    """Tells this machine from another of the same kind, without giving its name away."""
    name = _text(Path("/etc/machine-id")) or socket.gethostname()
    return content_hash(["framework-matrix host", name])


def cpu_model() -> str | None:
    """The processor's own name."""
    if SYSTEM == "darwin":
        return _says(["sysctl", "-n", "machdep.cpu.brand_string"])
    info = _cpuinfo()
    return info.get("model name") or info.get("Model") or info.get("CPU part") or None


def cpu_flags() -> tuple[str, ...]:
    """Instruction sets, as the kernel names them."""
    info = _cpuinfo()
    return tuple(sorted((info.get("flags") or info.get("Features") or "").split()))


def numa_nodes() -> tuple[str, ...]:
    """The CPU list of each memory node, in order."""
    folders = (SYS / "devices/system/node").glob("node[0-9]*")
    ordered = sorted(folders, key=lambda folder: int(folder.name.removeprefix("node")))
    return tuple(text for folder in ordered if (text := _text(folder / "cpulist")))


def governors() -> tuple[str, ...]:
    """Frequency governors in use, each once; empty where the CPU's frequency is not ours to see."""
    files = (SYS / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({text for file in files if (text := _text(file))}))


def boost() -> bool | None:
    """Whether the CPU may run above its nominal frequency."""
    no_turbo = _switch(SYS / "devices/system/cpu/intel_pstate/no_turbo")
    if no_turbo is not None:
        return not no_turbo
    return _switch(SYS / "devices/system/cpu/cpufreq/boost")


def frequency_range() -> tuple[float, float] | None:
    """MHz."""
    folder = SYS / "devices/system/cpu/cpu0/cpufreq"
    low, high = _text(folder / "cpuinfo_min_freq"), _text(folder / "cpuinfo_max_freq")
    if low and high and low.isdigit() and high.isdigit():
        return int(low) / 1000, int(high) / 1000
    return None


def huge_pages() -> str | None:
    """The choice in brackets: `always [madvise] never`."""
    text = _text(SYS / "kernel/mm/transparent_hugepage/enabled") or ""
    return text.partition("[")[2].partition("]")[0] or None


def system_name() -> str:
    """The distribution's own name."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.platform())
    except OSError:
        return platform.platform()


def hypervisor() -> str | None:
    """What this machine seems to be virtualised by; None where nothing says so."""
    vendor = _text(SYS / "hypervisor/type") or _text(SYS / "class/dmi/id/sys_vendor")
    virtual = "hypervisor" in cpu_flags()
    product = _text(SYS / "class/dmi/id/product_name")
    if not virtual:
        return None
    return " ".join(part for part in (vendor, product) if part) or "unknown"


def container() -> str | None:
    """The kind of container that this process runs in; None where nothing says so."""
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    return os.environ.get("container") or None  # noqa: SIM112  (systemd's own spelling)


def _fitting(cpus: tuple[int, ...] | None, limits: Limits) -> int:
    visible = len(cpus) if cpus else os.cpu_count() or 1
    if limits.cpu_quota is None:
        return visible
    return max(1, min(visible, int(limits.cpu_quota)))  # rounded down: half a core throttles a pool


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """The first processor's fields."""
    fields: dict[str, str] = {}
    for line in (_text(PROC / "cpuinfo") or "").splitlines():
        name, colon, value = line.partition(":")
        if not colon and fields:
            break
        fields[name.strip()] = value.strip()
    return fields


def _swap() -> int | None:
    try:
        return psutil.swap_memory().total
    except (OSError, RuntimeError):
        return None


def _switch(path: Path) -> bool | None:
    text = _text(path)
    return text == "1" if text in ("0", "1") else None


def _says(command: list[str]) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
