"""Hardware probe, cgroup limits, machine fingerprint, load, and the doctor's warnings."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_wheels import toy_framework

from matrix import catalog as shipped
from matrix.catalog.types import Build, Hardware, HardwareProbe, HardwareSupport, InstallStep
from matrix.errors import UsageError
from matrix.machine import doctor, hardware, load
from matrix.machine import fingerprint as machine
from matrix.machine.cgroup import Limits, read_limits
from matrix_adapters.protocol import to_json


def profile(nodes: list[str], library: str = "") -> dict[str, Hardware]:
    probe = HardwareProbe(device_nodes=nodes, library=library)
    return {"gpu": Hardware(name="gpu", title="Toy GPU", probe=probe)}


# --- hardware -----------------------------------------------------------------------------


def test_hardware_without_its_device_node_is_not_found_and_the_nodes_are_named() -> None:
    answer = hardware.probe(profile(["/dev/none0", "/dev/none1"]))["gpu"]
    assert not answer.found
    assert answer.reason == "no Toy GPU: none of /dev/none0, /dev/none1 exists"


def test_hardware_whose_library_does_not_load_is_not_found() -> None:
    answer = hardware.probe(profile(["/dev/none0", "/dev/null"], "libnothing.so.9"))["gpu"]
    assert not answer.found
    assert "/dev/null exists, but the driver's library libnothing.so.9 does not load" in answer.reason


def test_hardware_with_node_and_library_is_found_with_the_reason() -> None:
    answer = hardware.probe(profile(["/dev/null"], "libc.so.6"))["gpu"]
    assert answer.found
    assert answer.reason == "Toy GPU: /dev/null exists and libc.so.6 loads"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_a_device_that_this_user_may_not_open_is_not_found(tmp_path: Path) -> None:
    node = tmp_path / "gpu0"
    node.touch(mode=0o000)
    assert "may not open it" in hardware.probe(profile([str(node)]))["gpu"].reason


def test_a_profile_that_says_nothing_is_never_found() -> None:
    assert not hardware.probe(profile([]))["gpu"].found


def test_the_cpu_is_found_on_every_machine() -> None:
    assert hardware.probe(shipped.load().hardware)["cpu"].found


def test_the_test_hook_is_believed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hardware.ASSUME_VARIABLE, " gpu:cpu , ")
    answer = hardware.probe(profile(["/dev/none0"]))["gpu"]
    assert answer.found
    assert hardware.ASSUME_VARIABLE in answer.reason
    assert hardware.assumed() == {"gpu": "cpu"}
    monkeypatch.setenv(hardware.ASSUME_VARIABLE, "gpu")
    assert hardware.assumed() == {"gpu": None}


def test_a_mistyped_hook_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hardware.ASSUME_VARIABLE, "nvida")
    with pytest.raises(UsageError, match="'nvida'"):
        hardware.probe(profile([]))


def test_the_hook_puts_the_cpu_build_where_a_framework_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = shipped.load()
    assert hardware.assume(catalog) is catalog
    monkeypatch.setenv(hardware.ASSUME_VARIABLE, "nvidia:cpu")
    assumed = hardware.assume(catalog)
    pytorch = assumed.frameworks["pytorch"].hardware["nvidia"]
    assert (pytorch.build, pytorch.device) == ("cpu", "cuda")
    assert assumed.frameworks["tensorrt"].hardware == catalog.frameworks["tensorrt"].hardware
    assert catalog.frameworks["pytorch"].hardware["nvidia"].build == "cuda"


def test_the_hook_leaves_a_framework_without_that_build_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hardware.ASSUME_VARIABLE, "gpu:cpu")
    only_gpu = toy_framework().model_copy(
        update={
            "builds": {"cuda": Build(versions=["1.0"], steps=[InstallStep(install=["toy"])])},
            "hardware": {"gpu": HardwareSupport(build="cuda", device="cuda", precisions=["fp32"])},
        }
    )
    catalog = dataclasses.replace(shipped.load(), frameworks={"toy": only_gpu})
    assert hardware.assume(catalog).frameworks["toy"].hardware["gpu"].build == "cuda"


# --- cgroups ------------------------------------------------------------------------------


def fake_v1(root: Path, quota: str, period: str = "100000", group: str = "/") -> None:
    folder = root / "cgroup" / "cpu" / group.strip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (folder / "cpu.cfs_period_us").write_text(f"{period}\n")
    _own_group(root, f"3:cpu,cpuacct:{group}")


def fake_v2(root: Path, cpu_max: str, group: str = "/job") -> None:
    folder = root / "cgroup" / group.strip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(f"{cpu_max}\n")
    _own_group(root, f"0::{group}")


def _own_group(root: Path, line: str) -> None:
    path = root / "proc" / "self" / "cgroup"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + line + "\n")


def limits(root: Path) -> Limits:
    return read_limits(root / "proc", root / "cgroup")


@pytest.mark.parametrize(
    ("quota", "known", "cores"),
    [
        ("765000", "limited", 7.65),
        ("-1", "unlimited", None),
        ("50000", "limited", 0.5),
        ("nonsense", "unknown", None),
    ],
)
def test_a_version_1_quota(tmp_path: Path, quota: str, known: str, cores: float | None) -> None:
    fake_v1(tmp_path, quota)
    got = limits(tmp_path)
    assert (got.cpu, got.cpu_quota) == (known, cores)


@pytest.mark.parametrize(
    ("text", "known", "cores"),
    [
        ("200000 100000", "limited", 2.0),
        ("max 100000", "unlimited", None),
        ("50000 100000", "limited", 0.5),
        ("150000", "limited", 1.5),
        ("", "unknown", None),
        ("1 0", "unknown", None),
    ],
)
def test_a_version_2_quota(tmp_path: Path, text: str, known: str, cores: float | None) -> None:
    fake_v2(tmp_path, text)
    got = limits(tmp_path)
    assert (got.cpu, got.cpu_quota) == (known, cores)


def test_version_2_wins_where_both_answer(tmp_path: Path) -> None:
    fake_v1(tmp_path, "400000")
    fake_v2(tmp_path, "200000 100000")
    got = limits(tmp_path)
    assert (got.version, got.cpu_quota) == (2, 2.0)


def test_a_limit_of_a_group_above_counts(tmp_path: Path) -> None:
    fake_v2(tmp_path, "max 100000", group="/slice/job")
    (tmp_path / "cgroup" / "slice" / "cpu.max").write_text("300000 100000")
    assert limits(tmp_path).cpu_quota == 3.0


def test_without_any_file_the_limits_are_unknown_and_not_unlimited(tmp_path: Path) -> None:
    assert limits(tmp_path) == Limits()


def test_memory_limits_of_both_versions(tmp_path: Path) -> None:
    fake_v2(tmp_path, "max 100000")
    (tmp_path / "cgroup" / "job" / "memory.max").write_text("268435456\n")
    assert (limits(tmp_path).memory, limits(tmp_path).memory_bytes) == ("limited", 268435456)
    (tmp_path / "cgroup" / "job" / "memory.max").write_text("max\n")
    assert limits(tmp_path).memory == "unlimited"
    (tmp_path / "cgroup" / "job" / "memory.max").unlink()
    (tmp_path / "cgroup" / "memory").mkdir()
    (tmp_path / "cgroup" / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert limits(tmp_path).memory == "unlimited"


def test_throttled_periods_are_counted(tmp_path: Path) -> None:
    fake_v2(tmp_path, "200000 100000")
    (tmp_path / "cgroup" / "job" / "cpu.stat").write_text("nr_periods 50\nnr_throttled 7\n")
    assert (limits(tmp_path).throttled_periods, limits(tmp_path).periods) == (7, 50)


@given(cpus=st.integers(1, 256), quota=st.none() | st.floats(0.01, 512))
def test_threads_fit_the_affinity_and_the_quota_and_are_never_none(cpus: int, quota: float | None) -> None:
    got = machine._fitting(
        tuple(range(cpus)), Limits(cpu="limited" if quota else "unlimited", cpu_quota=quota)
    )
    assert 1 <= got <= cpus
    assert quota is None or got <= max(1.0, quota)


def test_usable_threads_follow_the_affinity_of_this_process() -> None:
    mine = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(mine)})
        assert machine.usable_threads() == 1
    finally:
        os.sched_setaffinity(0, mine)


# --- machine, load, doctor ----------------------------------------------------------------


def test_the_fingerprint_can_be_stored_and_is_the_same_when_read_again() -> None:
    first = machine.fingerprint()
    machine.fingerprint.cache_clear()
    assert machine.fingerprint() == first
    stored = json.loads(to_json(first))
    assert stored["usable_threads"] >= 1
    assert stored["identity"] == first.identity
    assert first.cpu_model


def test_a_fingerprint_without_proc_and_sys_has_gaps_and_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "SYS", tmp_path)
    machine._cpuinfo.cache_clear()
    machine.fingerprint.cache_clear()
    try:
        got = machine.fingerprint()
    finally:
        machine._cpuinfo.cache_clear()
        machine.fingerprint.cache_clear()
    assert (got.cpu_model, got.cpu_flags, got.governors, got.boost, got.numa_nodes) == (
        None,
        (),
        (),
        None,
        (),
    )


def test_load_between_two_snapshots_is_a_share_of_all_cpus() -> None:
    before = load.snapshot()
    after = dataclasses.replace(
        before,
        at=before.at + 10,
        cpu_busy_s=before.cpu_busy_s + 15,
        cpu_idle_s=before.cpu_idle_s + 5,
        cpu_steal_s=1.0 + (before.cpu_steal_s or 0),
        throttled_periods=3,
    )
    before = dataclasses.replace(before, throttled_periods=1, cpu_steal_s=before.cpu_steal_s or 0)
    got = load.between(before, after)
    assert (got.seconds, got.busy, got.throttled_periods) == (pytest.approx(10), pytest.approx(0.75), 2)
    assert got.steal == pytest.approx(0.05)
    assert got.text == "CPUs 75% busy, 5.0% stolen, throttled by the quota in 2 periods"


def test_two_snapshots_of_one_moment_give_no_share() -> None:
    one = load.snapshot()
    assert load.between(one, one).busy is None


def test_pressure_is_read_or_missing(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text("some avg10=12.50 avg60=3.00 avg300=1.00 total=5\n")
    (tmp_path / "pressure" / "io").write_text("garbage\n")
    assert load.pressure("cpu", tmp_path) == 12.5
    assert load.pressure("io", tmp_path) is None
    assert load.pressure("memory", tmp_path) is None


QUIET = load.LoadSnapshot(
    at=0,
    load_average=(0.1, 0.1, 0.1),
    pressure={"cpu": 0.0, "memory": None, "io": 0.0},
    cpu_busy_s=0,
    cpu_idle_s=0,
    cpu_steal_s=0,
    memory_available=64_000_000_000,
    swap_used=0,
    throttled_periods=0,
    thermal_throttles=0,
)


def plain_machine(**changes: object) -> machine.Machine:
    base = dataclasses.replace(
        machine.fingerprint(),
        affinity=(0, 1),
        logical_cpus=2,
        usable_threads=2,
        limits=Limits(version=2, cpu="unlimited", memory="unlimited"),
        numa_nodes=("0-1",),
        governors=("performance",),
        hypervisor=None,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def codes(host: machine.Machine, now: load.LoadSnapshot, home: Path) -> set[str]:
    return {warning.code for warning in doctor.warnings(host, now, home)}


def test_a_quiet_machine_has_no_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FREE_BYTES_WANTED", 0)
    assert codes(plain_machine(), QUIET, tmp_path) == set()


@pytest.mark.parametrize(
    ("code", "host", "now"),
    [
        ("load_high", {}, {"load_average": (1.5, 0.2, 0.1)}),
        ("load_unknown", {}, {"load_average": None}),
        ("pressure", {}, {"pressure": {"cpu": 40.0}}),
        ("cgroup_unknown", {"limits": Limits()}, {}),
        ("cpu_quota", {"limits": Limits(cpu="limited", cpu_quota=1.5)}, {}),
        ("quota_throttled", {"limits": Limits(cpu="unlimited", throttled_periods=9)}, {}),
        ("affinity", {"logical_cpus": 8}, {}),
        ("numa", {"numa_nodes": ("0", "1")}, {}),
        ("governor", {"governors": ("powersave",)}, {}),
        ("thermal", {}, {"thermal_throttles": 3}),
        ("virtual", {"hypervisor": "KVM"}, {}),
        ("memory", {}, {"memory_available": 1_000_000_000}),
        ("swap", {}, {"swap_used": 1_000_000_000}),
    ],
)
def test_each_trouble_is_warned_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    host: dict[str, object],
    now: dict[str, object],
) -> None:
    monkeypatch.setattr(doctor, "FREE_BYTES_WANTED", 0)
    assert codes(plain_machine(**host), dataclasses.replace(QUIET, **now), tmp_path) == {code}  # type: ignore[arg-type]


def test_too_little_disk_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FREE_BYTES_WANTED", 1e18)
    assert codes(plain_machine(), QUIET, tmp_path) == {"disk"}
