"""What disqualifies a launch and what is flagged: every fault is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix_adapters import checks, tensors
from matrix_adapters.adapter import Unavailable
from matrix_adapters.clock import Samples
from matrix_adapters.failures import Measured
from matrix_adapters.heartbeat import Heart
from matrix_adapters.launch import Launch
from matrix_adapters.protocol import Task, TaskKind


def task(**fields: Any) -> Task:
    return Task(kind=TaskKind.MEASURE, framework="toy", adapter="toy", **fields)


def samples(wall: list[float], cpu: list[float] | None = None, switches: list[int] | None = None) -> Samples:
    milliseconds = np.array(wall) * 1e6
    n = len(wall)
    return Samples(
        wall_ns=milliseconds.astype(np.int64),
        cpu_ns=np.zeros(n, np.int64),
        process_ns=(np.array(cpu) * 1e6).astype(np.int64) if cpu else milliseconds.astype(np.int64),
        nivcsw=np.array(switches or [0] * n, np.int64),
        nvcsw=np.zeros(n, np.int64),
        calls=np.ones(n, np.int64),
        start_ns=np.arange(n, dtype=np.int64),
    )


def codes(found: Any) -> set[str]:
    return {flag.code for flag in found}


def flags_of(tmp_path: Path, asked: Task | None = None, **notes: Any) -> dict[str, str]:
    """The flags of a launch that was fine but for `notes`."""
    launch = Launch(out_dir=tmp_path, heart=Heart(tmp_path))
    launch.effective = {"device": "cpu", "threads": 1, "precision": "fp32", "math_mode": "fp32"}
    for name, value in notes.items():
        setattr(launch, name, value)
    return {flag.code: flag.text for flag in checks.flags(asked or task(), launch)}


@pytest.mark.parametrize(
    ("asked", "used"), [("cuda", "cpu"), ("cpu", "cuda:0"), ("cuda:1", "cuda:0"), ("cuda", "mps")]
)
def test_another_device_than_asked_gives_no_number(asked: str, used: str) -> None:
    with pytest.raises(Unavailable, match=f"{asked} asked, {used} used"):
        checks.device_was_met(task(device=asked), {"device": used})


@pytest.mark.parametrize(("asked", "used"), [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")])
def test_the_device_that_was_asked_for_is_accepted(asked: str, used: str) -> None:
    checks.device_was_met(task(device=asked), {"device": used})


def test_inputs_that_a_call_wrote_into_are_named() -> None:
    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    before = tensors.fingerprints({"x": x, "y": y})
    checks.inputs_unchanged(before, tensors.fingerprints({"x": x, "y": y}))
    y[1] = 1
    with pytest.raises(Measured, match="wrote into its inputs: y"):
        checks.inputs_unchanged(before, tensors.fingerprints({"x": x, "y": y}))


@pytest.mark.parametrize("wall", [[], [1.0, 0.0], [1.0, -1.0]])
def test_a_measured_zero_is_an_error(wall: list[float]) -> None:
    with pytest.raises(Measured) as caught:
        checks.clock_moved(samples(wall))
    assert caught.value.code == "zero_time"


def test_steady_samples_carry_no_flag() -> None:
    assert checks.sample_flags(samples([5.0, 5.1, 4.9, 5.0, 5.2, 5.0, 4.8, 5.1, 5.0, 5.0])) == []


def test_an_early_sample_that_computed_much_longer_is_a_late_compile() -> None:
    (flag,) = checks.sample_flags(samples([5, 90, 5, 5, 5, 5, 5]))
    assert flag.code == "late_compile"
    assert "sample 2 of 7 took 18.0 x the median" in flag.text


def test_an_early_sample_that_only_waited_is_an_outlier() -> None:
    (flag,) = checks.sample_flags(
        samples([5, 90, 5, 5, 5, 5, 5], cpu=[5] * 7, switches=[0, 3, 0, 0, 0, 0, 0])
    )
    assert flag.code == "outlier"
    assert "preempted" in flag.text


def test_a_late_sample_that_computed_longer_is_an_outlier() -> None:
    (flag,) = checks.sample_flags(samples([5, 5, 5, 5, 5, 90, 5]))
    assert flag.code == "outlier"
    assert "preempted" not in flag.text


def test_a_card_that_heats_up_is_not_stationary() -> None:
    (flag,) = checks.sample_flags(samples([10.0] * 12 + [13.0] * 10))
    assert flag.code == "not_stationary"
    assert "+30%" in flag.text


def test_a_slow_start_is_not_stationary_either() -> None:
    (flag,) = checks.sample_flags(samples([13.0] * 10 + [10.0] * 12))
    assert "-23%" in flag.text


def test_a_drift_too_small_to_matter_is_not_flagged() -> None:
    assert checks.sample_flags(samples([10 + 0.01 * i for i in range(22)])) == []


def test_noise_without_order_is_not_a_trend() -> None:
    assert checks.sample_flags(samples([10.0, 13.0] * 11)) == []


@given(st.lists(st.floats(1e-6, 1e6), max_size=60))
def test_any_series_of_samples_can_be_checked(wall: list[float]) -> None:
    checks.sample_flags(samples([max(value, 1e-6) for value in wall]))


@pytest.mark.parametrize(
    ("name", "asked", "used"),
    [("threads", 1, 2), ("precision", "fp32", "bf16"), ("math_mode", "fp32", "tf32")],
)
def test_what_was_not_met_is_a_flag_with_both_values(
    tmp_path: Path, name: str, asked: Any, used: Any
) -> None:
    effective = {"device": "cpu", "threads": 1, "precision": "fp32", "math_mode": "fp32", name: used}
    found = flags_of(tmp_path, task(**{name: asked}), effective=effective)
    assert found == {f"{name}_differs": f"{name}: {asked} asked, {used} used"}


def test_a_framework_that_does_not_say_what_it_used_is_flagged(tmp_path: Path) -> None:
    found = flags_of(tmp_path, effective={"device": "cpu", "threads": 1, "precision": "fp32"})
    assert set(found) == {"math_mode_unknown"}


def test_a_gpu_need_not_name_a_thread_count(tmp_path: Path) -> None:
    effective = {"device": "cuda:0", "precision": "fp32", "math_mode": "fp32"}
    assert flags_of(tmp_path, task(device="cuda"), effective=effective) == {}


def test_more_threads_than_usable_cpus_are_oversubscribed(tmp_path: Path) -> None:
    effective = {"device": "cpu", "threads": 8, "precision": "fp32", "math_mode": "fp32"}
    found = flags_of(
        tmp_path, task(threads=8), effective=effective, probes={"machine": {"usable_threads": 4}}
    )
    assert found == {"oversubscribed": "8 threads on 4 usable CPUs"}


def test_a_quota_that_stopped_the_process_is_a_flag_only_when_its_counter_grew(tmp_path: Path) -> None:
    def moments(before: int | None, after: int | None) -> dict[str, Any]:
        return {"before": {"throttled": before}, "after": {"throttled": after}}

    assert flags_of(tmp_path, probes=moments(4, 7)) == {
        "throttled": "the CPU quota stopped the process 3 times"
    }
    assert flags_of(tmp_path, probes=moments(4, 4)) == {}
    assert flags_of(tmp_path, probes=moments(None, None)) == {}


def test_a_gpu_held_down_by_heat_is_throttled(tmp_path: Path) -> None:
    found = flags_of(tmp_path, probes={"after": {"gpu": {"throttle_reasons": ["power cap"]}}})
    assert found == {"throttled": "GPU clocks held down: power cap"}


def test_a_preloaded_library_is_flagged_by_name(tmp_path: Path) -> None:
    found = flags_of(tmp_path, probes={"machine": {"preload": {"LD_PRELOAD": "/x.so"}}})
    assert "LD_PRELOAD=/x.so" in found["preload"]


def test_subnormal_inputs_and_outputs_are_counted(tmp_path: Path) -> None:
    tiny = tensors.fingerprints({"x": np.array([1e-42, 0.0, 1.0], np.float32)})
    found = flags_of(tmp_path, artefacts={"inputs": tiny})
    assert found == {"subnormals": "subnormal numbers in the inputs: 1 in x"}
    assert "outputs: 1 in x" in flags_of(tmp_path, outputs=tiny)["subnormals"]


def test_a_loop_that_costs_more_than_one_per_cent_of_a_call_is_flagged(tmp_path: Path) -> None:
    assert flags_of(tmp_path, sampling={"loop_share": 0.009}) == {}
    assert "overhead 2.0%" in flags_of(tmp_path, sampling={"loop_share": 0.02})["overhead"]


def contention(
    tmp_path: Path, *, waited_us: int, steal_s: float = 0.0, cpu_share: float, **asked: Any
) -> set[str]:
    """Flag codes of a steady phase of 2 s in which the kernel counted this much waiting."""
    effective = {"device": "cpu", "precision": "fp32", "math_mode": "fp32", "threads": 1, **asked}
    before = {"pressure_cpu_us": 1_000, "steal_s": 1.0}
    after = {"pressure_cpu_us": 1_000 + waited_us, "steal_s": 1.0 + steal_s}
    return set(
        flags_of(
            tmp_path,
            task(**asked),
            effective=effective,
            phases={"steady_s": 2.0},
            sampling={"cpu_share": cpu_share},
            probes={"before": before, "after": after},
        )
    )


def test_a_process_that_had_to_share_its_cpu_is_contended(tmp_path: Path) -> None:
    assert contention(tmp_path, waited_us=900_000, cpu_share=0.5) == {"contended"}


def test_one_thread_that_computed_all_the_time_was_not_held_up(tmp_path: Path) -> None:
    assert contention(tmp_path, waited_us=900_000, cpu_share=0.99) == set()


def test_with_more_threads_the_share_of_cpu_time_proves_nothing(tmp_path: Path) -> None:
    assert contention(tmp_path, waited_us=900_000, cpu_share=1.5, threads=2) == {"contended"}


def test_a_process_that_waits_on_an_idle_machine_is_not_contended(tmp_path: Path) -> None:
    assert contention(tmp_path, waited_us=10_000, cpu_share=0.1) == set()


def test_time_that_the_hypervisor_took_is_flagged(tmp_path: Path) -> None:
    assert contention(tmp_path, waited_us=0, steal_s=0.5, cpu_share=1.0) == {"stolen"}


@pytest.mark.parametrize(
    ("user_s", "system_s", "told"),
    [
        (1.0, 0.05, False),
        (1.0, 0.25, True),
        (0.02, 0.02, False),  # too short to be split
    ],
)
def test_time_that_the_kernel_took_is_told_with_its_page_faults(
    tmp_path: Path, user_s: float, system_s: float, told: bool
) -> None:
    before = {"user_s": 2.0, "system_s": 1.0, "minor_page_faults": 500}
    after = {"user_s": 2.0 + user_s, "system_s": 1.0 + system_s, "minor_page_faults": 66_500}
    seen = flags_of(tmp_path, sampling={"calls": 20}, probes={"before": before, "after": after})
    assert seen.get("kernel_time") == (
        "20% of the CPU time was the kernel's, with 3,300 page faults a call" if told else None
    )
