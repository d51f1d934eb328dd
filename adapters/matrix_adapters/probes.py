"""What the machine was like around a measurement: read, never judged.

Each fact is a small reader named after what it reads. A fact that cannot be read is
None, and `absent` says why: on virtual machines half of them do not exist.
`root` is where `/proc` and `/sys` are looked for, so that tests can plant a machine.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from matrix_adapters import cgroup, nvml

_ROOT = Path("/")
_Fact = TypeVar("_Fact")
_LONGEST = 300  # characters of a variable's value that are kept

#: they hook calls or load code into the process: case "a profiler that is merely installed"
_PRELOAD = re.compile(
    r"LD_PRELOAD|LD_AUDIT|DYLD_INSERT_LIBRARIES|CUDA_INJECTION64_PATH|NVTX_INJECTION64_PATH"
    r"|ROCP_TOOL_LIB|HSA_TOOLS_LIB|KINETO_\w+|NSYS_\w+|VTUNE_\w+|SCOREP_\w+|COVERAGE_PROCESS_START"
    r"|PYTHONTRACEMALLOC|PYTHONMALLOC|PYTHONDEVMODE"
)
#: they steer libraries that do the work
_STEERING = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|DNNL|ONEDNN|ATEN|TORCH|TORCHINDUCTOR|PYTORCH|TF|XLA|KERAS|ORT|TRT|CUDA|CUBLAS"
    r"|CUDNN|NVIDIA|NCCL|TRITON|HIP|HSA|ROCR|MIOPEN|MALLOC|LD)_\w+"
)
_LIBRARIES = re.compile(
    r"lib(cudnn|cublas|cudart|cuda|nvinfer|tensorrt|mkl|dnnl|onednn|openblas|scipy_openblas|blis|gomp|iomp5|omp"
    r"|tbb|jemalloc|tcmalloc|mimalloc|nccl|amdhip64|rocblas|MIOpen|torch_cpu|torch_cuda|tensorflow|onnxruntime)"
    r"[-\w.]*\.(so|dylib)"
)


def machine(root: Path = _ROOT) -> dict[str, Any]:
    """What does not change while a process runs."""
    cpuinfo, cpu = root / "proc/cpuinfo", root / "sys/devices/system/cpu"
    return _collect(
        {
            "cpu_model": lambda: _cpu_model(cpuinfo),
            "cpus": os.cpu_count,
            "affinity": affinity,
            "quota": lambda: _quota(root),
            "usable_threads": lambda: usable_threads(root),
            "governor": lambda: _text(cpu / "cpu0/cpufreq/scaling_governor"),
            "frequency_driver": lambda: _text(cpu / "cpu0/cpufreq/scaling_driver"),
            "boost": lambda: _boost(cpu),
            "smt": lambda: _text(cpu / "smt/control"),
            "numa_nodes": lambda: _text(root / "sys/devices/system/node/online"),
            "clock_source": lambda: _text(
                root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
            ),
            "huge_pages": lambda: _chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
            "virtual_machine": lambda: " hypervisor" in _field(cpuinfo, "flags"),
            "kernel": platform.release,
            "preload": lambda: _variables(_PRELOAD) | _tracing(),
            "variables": lambda: _variables(_STEERING),
        }
    )


def moment(device: str, root: Path = _ROOT) -> dict[str, Any]:
    """What does change: read right before and right after the steady phase."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return _collect(
        {
            "load_average": lambda: [float(n) for n in _text(root / "proc/loadavg").split()[:3]],
            "pressure_cpu_us": lambda: _pressure(root / "proc/pressure/cpu"),
            "pressure_memory_us": lambda: _pressure(root / "proc/pressure/memory"),
            "pressure_io_us": lambda: _pressure(root / "proc/pressure/io"),
            "steal_s": lambda: _steal(root / "proc/stat"),
            "throttled": lambda: _present(cgroup.throttled(root), "no control group with a counter"),
            "frequency_khz": lambda: _frequencies(root / "sys/devices/system/cpu"),
            "memory_available_bytes": lambda: _memory_available(root / "proc/meminfo"),
            "voluntary_switches": lambda: usage.ru_nvcsw,
            "involuntary_switches": lambda: usage.ru_nivcsw,
            "page_faults": lambda: usage.ru_majflt,
            "minor_page_faults": lambda: usage.ru_minflt,
            "user_s": lambda: usage.ru_utime,
            "system_s": lambda: usage.ru_stime,
            "threads": lambda: int(_field(root / "proc/self/status", "Threads")),
            "cpu_energy_j": lambda: _cpu_energy(root / "sys/class/powercap"),
            "gpu": lambda: _gpu(device),
        }
    )


def libraries(root: Path = _ROOT) -> list[str]:
    """Numeric libraries that are really loaded, by path, whatever was declared; [] where not told."""
    try:
        lines = (root / "proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if _LIBRARIES.match(Path(path).name))


def distributions() -> list[str]:
    """Everything installed where this interpreter looks, `name==version`, names normalised (PEP 503)."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a broken installation can leave metadata without a name
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def affinity() -> list[int]:
    """The CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_threads(root: Path = _ROOT) -> int:
    """min(affinity, floor(quota), host)."""
    return cgroup.usable_threads(len(affinity()), cgroup.cpu_quota(root))


def energy(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[float, str] | str:
    """Joules between two moments and the counter they came from, or why there are none."""
    gpu_before, gpu_after = before.get("gpu") or {}, after.get("gpu") or {}
    for source, first, last in (
        ("NVML total energy of the GPU", gpu_before.get("energy_j"), gpu_after.get("energy_j")),
        ("RAPL, whole package", before.get("cpu_energy_j"), after.get("cpu_energy_j")),
    ):
        if first is None or last is None:
            continue
        if last <= first:
            return f"{source}: the counter did not advance"
        return last - first, source
    return f"no energy counter: {before.get('absent', {}).get('cpu_energy_j', 'none was read')}"


def _collect(readers: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for name, reader in readers.items():
        try:
            facts[name] = reader()
        except (OSError, ValueError, LookupError, nvml.NvmlError) as error:
            facts[name] = None
            gone = isinstance(error, FileNotFoundError)
            absent[name] = f"{getattr(error, 'filename', '')} does not exist" if gone else str(error)
    return {**facts, "absent": absent}


def _quota(root: Path) -> dict[str, Any]:
    quota = cgroup.cpu_quota(root)
    return {"kind": quota.kind, "cpus": quota.cpus}


def _variables(names: re.Pattern[str]) -> dict[str, str]:
    return {k: v[:_LONGEST] for k, v in sorted(os.environ.items()) if v and names.fullmatch(k)}


def _tracing() -> dict[str, str]:
    hooks = {"sys.settrace": sys.gettrace(), "sys.setprofile": sys.getprofile()}
    return {name: type(hook).__name__ for name, hook in hooks.items() if hook is not None}


def _gpu(device: str) -> dict[str, Any]:
    kind, _, index = device.partition(":")
    if kind != "cuda":
        raise LookupError(f"the device is {device}")
    return nvml.read(int(index or 0))


def _text(path: Path) -> str:
    return path.read_text().strip()


def _field(path: Path, name: str) -> str:
    """The value of the first `name : value` line."""
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    raise LookupError(f"no {name!r} in {path}")


def _cpu_model(cpuinfo: Path) -> str:
    try:
        return _field(cpuinfo, "model name")
    except (OSError, LookupError):
        return platform.processor() or platform.machine()  # Arm's cpuinfo has no model name


def _boost(cpu: Path) -> bool:
    if (cpu / "intel_pstate/no_turbo").exists():
        return _text(cpu / "intel_pstate/no_turbo") == "0"
    return _text(cpu / "cpufreq/boost") == "1"


def _frequencies(cpu: Path) -> list[int]:
    files = sorted(cpu.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    return _present([int(_text(file)) for file in files] or None, "no cpufreq here")


def _chosen(text: str) -> str:
    """`always [madvise] never` -> `madvise`."""
    found = re.search(r"\[(\w+)\]", text)
    return found.group(1) if found else text


def _pressure(path: Path) -> int:
    """Microseconds in which some task waited, ever since boot (PSI); two moments give a share."""
    found = re.search(r"^some .*\btotal=(\d+)", path.read_text(), re.MULTILINE)
    return int(_present(found, f"no 'some' line in {path}").group(1))


def _steal(stat: Path) -> float:
    """Seconds that the hypervisor gave to others, all CPUs, since boot (proc(5): the 8th number)."""
    return int(_text(stat).splitlines()[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def _memory_available(meminfo: Path) -> int:
    return int(_field(meminfo, "MemAvailable").split()[0]) * 1024


def _cpu_energy(powercap: Path) -> float:
    packages = sorted(powercap.glob("intel-rapl:[0-9]"))
    joules = [int(_text(package / "energy_uj")) / 1e6 for package in packages]
    return sum(_present(joules or None, "no RAPL here"))


def _present(value: _Fact | None, why_not: str) -> _Fact:
    if value is None:
        raise LookupError(why_not)
    return value
