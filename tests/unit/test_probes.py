"""Probes on planted machines: control groups, GPUs and system files that tests write."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix_adapters import cgroup, memory, nvml, probes
from matrix_adapters.cgroup import Quota


def plant(root: Path, **files: str) -> Path:
    """Write files; `__` in a name stands for `/` (`proc__loadavg`)."""
    for name, content in files.items():
        write(root, name.replace("__", "/"), content)
    return root


def write(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def v1(root: Path, quota: str, period: str = "100000", path: str = "") -> Path:
    write(root, f"sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us", quota)
    write(root, f"sys/fs/cgroup/cpu{path}/cpu.cfs_period_us", period)
    return root


def v2(root: Path, limit: str, path: str = "") -> Path:
    write(root, f"sys/fs/cgroup{path}/cpu.max", limit)
    return root


@pytest.mark.parametrize(
    ("quota", "kind", "threads"),
    [("765000", "limited", 7), ("-1", "unlimited", 96), ("50000", "limited", 1), ("200000", "limited", 2)],
)
def test_a_quota_of_the_old_hierarchy_is_rounded_down(
    tmp_path: Path, quota: str, kind: str, threads: int
) -> None:
    found = cgroup.cpu_quota(v1(tmp_path, quota))
    assert found.kind == kind
    assert cgroup.usable_threads(96, found) == threads


@pytest.mark.parametrize(
    ("limit", "kind", "threads"),
    [
        ("200000 100000", "limited", 2),
        ("max 100000", "unlimited", 16),
        ("50000 100000", "limited", 1),
        ("250000 100000\n", "limited", 2),
        ("3200000 100000", "limited", 16),
    ],
)
def test_a_quota_of_the_new_hierarchy_is_rounded_down(
    tmp_path: Path, limit: str, kind: str, threads: int
) -> None:
    found = cgroup.cpu_quota(v2(tmp_path, limit))
    assert found.kind == kind
    assert cgroup.usable_threads(16, found) == threads


def test_the_new_hierarchy_wins_where_both_exist(tmp_path: Path) -> None:
    assert cgroup.cpu_quota(v2(v1(tmp_path, "100000"), "300000 100000")) == Quota("limited", 3.0)


def test_a_hybrid_machine_whose_new_hierarchy_has_no_cpu_controller_uses_the_old(tmp_path: Path) -> None:
    write(tmp_path, "sys/fs/cgroup/unified/cgroup.procs", "")
    assert cgroup.cpu_quota(v1(tmp_path, "150000")) == Quota("limited", 1.5)


@pytest.mark.parametrize("content", ["", "nonsense", "1 2 3", "100000 0", "many 100000"])
def test_a_file_that_cannot_be_understood_is_unknown_and_not_a_crash(tmp_path: Path, content: str) -> None:
    found = cgroup.cpu_quota(v2(tmp_path, content))
    assert found == Quota("unknown")
    assert cgroup.usable_threads(4, found) == 4


def test_a_quota_without_its_period_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000")
    assert cgroup.cpu_quota(tmp_path).kind == "unknown"


def test_a_machine_without_control_groups_is_unlimited(tmp_path: Path) -> None:
    assert cgroup.cpu_quota(tmp_path) == Quota("unlimited")
    assert cgroup.throttled(tmp_path) is None


def test_the_tightest_ancestor_counts(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/job/step\n")
    v2(tmp_path, "400000 100000", "/job")
    v2(tmp_path, "max 100000", "/job/step")
    assert cgroup.cpu_quota(tmp_path) == Quota("limited", 4.0)


def test_a_limit_of_another_group_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/mine\n")
    v2(tmp_path, "100000 100000", "/other")
    v2(tmp_path, "max 100000", "/mine")
    assert cgroup.cpu_quota(tmp_path).kind == "unlimited"


def test_a_host_path_that_the_container_does_not_see_falls_back_to_its_mount(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/docker/0123abcd\n")
    assert cgroup.cpu_quota(v2(tmp_path, "200000 100000")) == Quota("limited", 2.0)


def test_the_old_hierarchy_finds_its_own_path_among_the_controllers(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "5:memory:/wrong\n4:cpu,cpuacct:/right\n0::/\n")
    v1(tmp_path, "900000", path="/wrong")
    v1(tmp_path, "300000", path="/right")
    assert cgroup.cpu_quota(tmp_path) == Quota("limited", 3.0)


def test_a_path_that_climbs_out_of_the_mount_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/../../etc\n")
    assert cgroup.cpu_quota(v2(tmp_path, "200000 100000")) == Quota("limited", 2.0)


@given(st.integers(1, 10**9), st.integers(1, 10**6), st.integers(1, 512))
def test_threads_are_never_more_than_quota_or_affinity_and_never_none(
    quota: int, period: int, cpus: int
) -> None:
    threads = cgroup.usable_threads(cpus, Quota("limited", quota / period))
    assert 1 <= threads <= cpus
    assert threads <= max(1.0, quota / period)


def test_throttling_is_counted_over_all_levels(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/job\n")
    write(tmp_path, "sys/fs/cgroup/cpu.stat", "usage_usec 5\n")
    write(tmp_path, "sys/fs/cgroup/job/cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 4\n")
    assert cgroup.throttled(tmp_path) == 4


def test_throttling_is_read_from_the_old_hierarchy_too(tmp_path: Path) -> None:
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.stat", "nr_periods 9\nnr_throttled 2\nthrottled_time 7\n")
    assert cgroup.throttled(tmp_path) == 2


def test_an_empty_machine_gives_a_reason_for_every_fact_it_lacks(tmp_path: Path) -> None:
    for facts in (probes.machine(tmp_path), probes.moment("cpu", tmp_path)):
        missing = {name for name, value in facts.items() if value is None}
        assert missing == set(facts["absent"])
        assert all(facts["absent"].values())


def test_the_facts_of_a_planted_machine_are_read(tmp_path: Path) -> None:
    cpu = "sys__devices__system__cpu"
    plant(
        tmp_path,
        proc__cpuinfo="model name\t: Imaginary 9000\nflags\t\t: fpu vme hypervisor\n",
        proc__loadavg="0.50 1.00 1.50 1/100 1234\n",
        proc__stat=f"cpu  1 2 3 4 5 6 7 {3 * os.sysconf('SC_CLK_TCK')} 9 10\n",
        proc__meminfo="MemTotal: 2 kB\nMemAvailable:    1024 kB\n",
        proc__pressure__cpu="some avg10=0.00 avg60=0.00 avg300=0.00 total=42\nfull avg10=0 total=9\n",
    )
    write(tmp_path, f"{cpu.replace('__', '/')}/cpu0/cpufreq/scaling_governor", "performance\n")
    write(tmp_path, f"{cpu.replace('__', '/')}/cpu0/cpufreq/scaling_cur_freq", "3000000\n")
    write(tmp_path, f"{cpu.replace('__', '/')}/intel_pstate/no_turbo", "1\n")
    write(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    facts, now = probes.machine(tmp_path), probes.moment("cpu", tmp_path)
    assert facts["cpu_model"] == "Imaginary 9000"
    assert facts["virtual_machine"] is True
    assert facts["governor"] == "performance"
    assert facts["boost"] is False
    assert facts["huge_pages"] == "madvise"
    assert now["load_average"] == [0.5, 1.0, 1.5]
    assert now["steal_s"] == 3.0
    assert now["memory_available_bytes"] == 1 << 20
    assert now["pressure_cpu_us"] == 42
    assert now["frequency_khz"] == [3_000_000]
    assert now["absent"]["gpu"] == "the device is cpu"


@pytest.mark.parametrize("text", ["", "garbage", "cpu\n", "some total=\n"])
def test_system_files_in_a_form_never_seen_do_not_crash_a_launch(tmp_path: Path, text: str) -> None:
    plant(
        tmp_path,
        proc__cpuinfo=text,
        proc__loadavg=text,
        proc__stat=text,
        proc__meminfo=text,
        proc__pressure__cpu=text,
        proc__self__status=text,
        proc__self__cgroup=text,
    )
    probes.machine(tmp_path)
    now = probes.moment("cpu", tmp_path)
    assert {"steal_s", "pressure_cpu_us", "memory_available_bytes"} <= set(now["absent"])


def test_this_machine_can_be_probed() -> None:
    facts = probes.machine()
    assert 1 <= facts["usable_threads"] <= facts["cpus"]
    assert len(facts["affinity"]) >= facts["usable_threads"]
    moment = probes.moment("cpu")
    assert moment["involuntary_switches"] >= 0
    assert moment["minor_page_faults"] > 0
    assert moment["user_s"] + moment["system_s"] > 0


def test_variables_that_hook_a_process_are_told_from_those_that_steer_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "CUDA_INJECTION64_PATH": "/opt/tool.so",
        "LD_PRELOAD": "/lib/a.so",
        "OMP_NUM_THREADS": "4",
        "SECRET_TOKEN": "hunter2",
        "TF_EMPTY": "",
    }.items():
        monkeypatch.setenv(name, value)
    facts = probes.machine()
    assert facts["preload"]["CUDA_INJECTION64_PATH"] == "/opt/tool.so"
    assert facts["preload"]["LD_PRELOAD"] == "/lib/a.so"
    assert facts["variables"]["OMP_NUM_THREADS"] == "4"
    assert "hunter2" not in str(facts)
    assert "TF_EMPTY" not in facts["variables"]


def test_loaded_numeric_libraries_are_listed_by_path(tmp_path: Path) -> None:
    line = "7f00-7f01 r-xp 00000000 08:01 123   {}\n"
    paths = ["/usr/lib/libcudnn.so.9.1", "/x/my libs/libgomp-a1b2.so.1", "/usr/lib/libc.so.6", "[stack]"]
    plant(
        tmp_path, proc__self__maps="".join(line.format(path) for path in paths) + "7f02-7f03 rw-p 0 00:00 0\n"
    )
    assert probes.libraries(tmp_path) == ["/usr/lib/libcudnn.so.9.1", "/x/my libs/libgomp-a1b2.so.1"]
    assert probes.libraries(tmp_path / "nowhere") == []


def test_installed_distributions_are_seen_from_inside() -> None:
    assert f"numpy=={np.__version__}" in probes.distributions()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"cpu_energy_j": 5.0}, {"cpu_energy_j": 7.5}, (2.5, "RAPL, whole package")),
        (
            {"cpu_energy_j": 5.0, "gpu": {"energy_j": 1.0}},
            {"cpu_energy_j": 9.0, "gpu": {"energy_j": 4.0}},
            (3.0, "NVML total energy of the GPU"),
        ),
    ],
)
def test_energy_is_the_growth_of_a_counter(before: Any, after: Any, expected: Any) -> None:
    assert probes.energy(before, after) == expected


def test_energy_without_a_counter_is_a_reason_and_never_a_zero() -> None:
    assert (
        probes.energy({"absent": {"cpu_energy_j": "no RAPL here"}}, {}) == "no energy counter: no RAPL here"
    )
    wrapped = probes.energy({"cpu_energy_j": 262143.0}, {"cpu_energy_j": 1.0})
    assert isinstance(wrapped, str)
    assert "did not advance" in wrapped


class FakeNvml:
    """Stands in for libnvidia-ml: answers through the pointers that it is given."""

    def __init__(self, *, start: int = 0, lacking: tuple[str, ...] = (), reasons: int = 0) -> None:
        self._start, self._lacking, self._reasons = start, lacking, reasons
        self.asked_for: Any = None
        self.shut_down = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        numbers = {
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetTemperature": 41,
            "nvmlDeviceGetCurrentClocksThrottleReasons": self._reasons,
            "nvmlDeviceGetPowerUsage": 350_500,
            "nvmlDeviceGetTotalEnergyConsumption": 7_250,
        }
        if name in self._lacking:
            return lambda *_: 3  # NVML_ERROR_NOT_SUPPORTED
        if name not in numbers:
            raise AttributeError(f"undefined symbol: {name}")

        def answer(*arguments: Any) -> int:
            arguments[-1]._obj.value = numbers[name]
            return 0

        return answer

    def nvmlInit_v2(self) -> int:
        return self._start

    def nvmlShutdown(self) -> int:
        self.shut_down = True
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        self.asked_for = index.value
        return 0 if index.value < 4 else 2

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        self.asked_for = uuid
        return 0

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, length: Any) -> int:
        buffer.value = b"Imaginary GPU"
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.used = 5 << 30
        return 0


@pytest.fixture
def no_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("no_visible_devices")
def test_a_gpu_tells_its_state_in_stated_units() -> None:
    library = FakeNvml(reasons=0x20 | 0x4 | 0x1)
    facts = nvml.read(0, library)
    assert facts["name"] == "Imaginary GPU"
    assert facts["sm_clock_mhz"] == 1980
    assert facts["power_w"] == 350.5
    assert facts["energy_j"] == 7.25
    assert facts["memory_used_bytes"] == 5 << 30
    assert facts["throttle_reasons"] == ["power cap", "software thermal slowdown"], "idle is no throttling"
    assert "absent" not in facts
    assert library.shut_down


@pytest.mark.usefixtures("no_visible_devices")
def test_what_a_card_does_not_answer_is_absent_with_the_error() -> None:
    facts = nvml.read(0, FakeNvml(lacking=("nvmlDeviceGetPowerUsage",)))
    assert facts["power_w"] is None
    assert facts["absent"] == {"power_w": "nvmlDeviceGetPowerUsage: NVML error 3"}


@pytest.mark.usefixtures("no_visible_devices")
def test_a_driver_that_does_not_start_is_an_error_that_says_so() -> None:
    with pytest.raises(nvml.NvmlError, match="nvmlInit_v2: NVML error 9"):
        nvml.read(0, FakeNvml(start=9))


@pytest.mark.parametrize(
    ("visible", "index", "asked"), [("", 1, 1), ("3,2", 1, 2), ("GPU-abc", 0, b"GPU-abc")]
)
def test_the_device_is_the_one_the_framework_means(
    monkeypatch: pytest.MonkeyPatch, visible: str, index: int, asked: Any
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = FakeNvml()
    nvml.read(index, library)
    assert library.asked_for == asked


def test_a_machine_without_a_gpu_driver_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver(*_: Any) -> Any:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", no_driver)
    now = probes.moment("cuda")
    assert now["gpu"] is None
    assert "libnvidia-ml.so.1" in now["absent"]["gpu"]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's clear_refs")
def test_a_peak_belongs_to_the_phase_that_caused_it() -> None:
    peaks = memory.Peaks()
    with peaks.of("large"):
        np.ones(32 << 20, np.float64).sum()  # 256 MiB
    with peaks.of("small"):
        np.ones(1 << 10).sum()
    assert peaks.bytes["large"] > peaks.bytes["small"] + (200 << 20)


def test_without_a_resettable_counter_the_peak_so_far_is_given(tmp_path: Path) -> None:
    peaks = memory.Peaks(proc=tmp_path / "nowhere")
    with peaks.of("load"):
        pass
    assert peaks.method.startswith("ru_maxrss")
    assert peaks.bytes["load"] > 1 << 20
