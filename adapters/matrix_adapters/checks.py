"""What disqualifies a launch, and what rides on its numbers as a flag.

Checks raise; flags are returned. Flags say what to distrust, never what to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from matrix_adapters import clock
from matrix_adapters.adapter import Unavailable
from matrix_adapters.failures import Measured
from matrix_adapters.launch import Launch
from matrix_adapters.protocol import Flag, Task, TensorFacts

OVERHEAD_SHARE = 0.01  # of a call that may be our own loop
OUTLIER_FACTOR = 5.0  # times the median sample
WAIT_SHARE = 0.10  # of the steady phase in which others may hold the CPUs
KERNEL_SHARE = 0.10  # of the process's CPU time in the steady phase
KERNEL_LEAST_S = 0.25  # of CPU time: the kernel splits it by sampling, a few milliseconds tell nothing
TREND_SHARE = 0.10  # between the first and the last third of the samples
TREND_Z = 2.58  # Mann-Kendall, two-sided 1 %
TREND_SAMPLES = 9


def device_was_met(task: Task, effective: Mapping[str, Any]) -> None:
    """Raises Unavailable when another kind of device did the work: such a cell has no number."""
    asked, _, asked_index = task.device.partition(":")
    used, _, used_index = str(effective["device"]).partition(":")
    if asked != used or (asked_index and used_index and asked_index != used_index):
        raise Unavailable(f"{task.device} asked, {effective['device']} used")


def inputs_unchanged(before: Mapping[str, TensorFacts], after: Mapping[str, TensorFacts]) -> None:
    """Raises when a call wrote into its inputs: later calls were fed something else."""
    changed = [name for name in before if before[name] != after.get(name)]
    if changed:
        raise Measured("inputs_changed", f"the framework wrote into its inputs: {', '.join(changed)}")


def clock_moved(samples: clock.Samples) -> None:
    """Raises when a sample took no time at all: a 0 is never a measurement."""
    if len(samples) == 0 or int(samples.wall_ns.min()) <= 0:
        raise Measured("zero_time", "a sample took no time: the clock stood still or ran backwards")


def sample_facts(null_runner: Any, samples: clock.Samples, target_ns: int) -> dict[str, Any]:
    """CPU time per wall time; the loop's own cost per call, measured here and now, and its share of a call.

    Nothing is ever subtracted.
    """
    median, low, high = clock.loop_cost_ns(null_runner, target_ns)
    call = float(np.median(samples.per_call(samples.wall_ns)))
    sample = float(np.median(samples.wall_ns))
    wall = float(samples.wall_ns.sum())
    return {
        "cpu_share": float(samples.process_ns.sum()) / wall if wall else 0.0,
        "loop_cost_ns": median,
        "loop_cost_low_ns": low,
        "loop_cost_high_ns": high,
        "loop_share": median / call if call else 0.0,
        "clock_share": clock.edge_cost_ns() / sample if sample else 0.0,
    }


def flags(task: Task, launch: Launch) -> list[Flag]:
    """What the launch as a whole says against its numbers."""
    return [
        *_differs_from_asked(task, launch.effective),
        *_crowded(task, launch.probes),
        *_contended(task, launch),
        *_in_kernel(launch),
        *_data_flags(launch),
        *_overhead_flags(launch.sampling),
    ]


def sample_flags(samples: clock.Samples) -> list[Flag]:
    """What the samples themselves say: a late compile, an outlier, a drift."""
    wall = samples.per_call(samples.wall_ns)
    cpu = samples.per_call(samples.process_ns)
    return [*_outliers(wall, cpu, samples.nivcsw), *_trend(wall)]


def slice_flags(samples: clock.Samples, numbers: clock.Integers) -> list[Flag]:
    """The same of samples that were taken in slices, with the number of each one's slice.

    There are thousands of samples, of which some are always far out: drift and outliers are
    looked for among the slices' medians, and only a compilation in single samples.
    """
    wall = samples.per_call(samples.wall_ns)
    cpu = samples.per_call(samples.process_ns)
    compiled = [f for f in _outliers(wall, cpu, samples.nivcsw) if f.code == "late_compile"]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    typical, typical_cpu = (
        np.array([np.median(part) for part in np.split(values, starts[1:])]) for values in (wall, cpu)
    )
    switches = np.add.reduceat(samples.nivcsw, starts)
    return [*compiled, *_outliers(typical, typical_cpu, switches, "slice"), *_trend(typical)]


def _differs_from_asked(task: Task, effective: Mapping[str, Any]) -> list[Flag]:
    asked = {"threads": task.threads, "precision": task.precision, "math_mode": task.math_mode}
    found = []
    for name, value in asked.items():
        used = effective.get(name)
        if used is None:
            if task.device != "cpu" and name == "threads":
                continue  # a GPU has no such number
            found.append(
                Flag(code=f"{name}_unknown", text=f"{name}: the framework does not say what it used")
            )
        elif used != value:
            found.append(Flag(code=f"{name}_differs", text=f"{name}: {value} asked, {used} used"))
    return found


def _contended(task: Task, launch: Launch) -> list[Flag]:
    """Others competed for the CPUs, by the kernel's own account (PSI, steal), and it was felt.

    One thread that computed nearly all the time was not held up, however busy the rest was.
    """
    seconds = launch.phases.get("steady_s", 0.0)
    if not seconds or task.device != "cpu":
        return []
    found = []
    waited = min(1.0, _growth(launch.probes, "pressure_cpu_us") / 1e6 / seconds)
    computed = launch.sampling.get("cpu_share", 0.0)
    if waited > WAIT_SHARE and not (task.threads == 1 and computed >= 1 - WAIT_SHARE):
        text = (
            f"for {waited:.0%} of the steady phase some task was waiting for a CPU; "
            f"this one was computing for {computed:.0%} of it"
        )
        found.append(Flag(code="contended", text=text))
    stolen = _growth(launch.probes, "steal_s") / seconds
    if stolen > WAIT_SHARE:
        text = f"the hypervisor gave {stolen:.2f} CPUs to others in the steady phase"
        found.append(Flag(code="stolen", text=text))
    return found


def _in_kernel(launch: Launch) -> list[Flag]:
    """A call's time is partly the kernel's: most often pages that an allocator gives back and takes again.

    How many it takes depends on where the process happens to have its heap: such launches differ
    from each other, in a container or outside, with nothing else running.
    """
    system = _growth(launch.probes, "system_s")
    total = system + _growth(launch.probes, "user_s")
    if total < KERNEL_LEAST_S or system <= KERNEL_SHARE * total:
        return []
    faults = _growth(launch.probes, "minor_page_faults") / max(1, launch.sampling.get("calls", 0))
    text = f"{system / total:.0%} of the CPU time was the kernel's, with {faults:,.0f} page faults a call"
    return [Flag(code="kernel_time", text=text)]


def _growth(seen: Mapping[str, Any], name: str) -> float:
    """How much a counter grew over the steady phase; 0 where it cannot be read."""
    before, after = (seen.get(when, {}).get(name) for when in ("before", "after"))
    return 0.0 if before is None or after is None else float(after - before)


def _crowded(task: Task, seen: Mapping[str, Any]) -> list[Flag]:
    found = []
    usable = seen.get("machine", {}).get("usable_threads")
    if usable is not None and task.threads > usable:
        found.append(Flag(code="oversubscribed", text=f"{task.threads} threads on {usable} usable CPUs"))
    stops = int(_growth(seen, "throttled"))
    if stops > 0:
        found.append(Flag(code="throttled", text=f"the CPU quota stopped the process {stops} times"))
    gpu = seen.get("after", {}).get("gpu") or {}
    if gpu.get("throttle_reasons"):
        found.append(
            Flag(code="throttled", text=f"GPU clocks held down: {', '.join(gpu['throttle_reasons'])}")
        )
    preloaded = seen.get("machine", {}).get("preload", {})
    if preloaded:
        text = ", ".join(f"{name}={value}" for name, value in preloaded.items())
        found.append(Flag(code="preload", text=f"a profiler or preloaded library was present: {text}"))
    return found


def _data_flags(launch: Launch) -> list[Flag]:
    found = []
    for where, tensors in (("inputs", launch.artefacts.get("inputs", {})), ("outputs", launch.outputs)):
        counts = {name: facts.subnormal for name, facts in tensors.items() if facts.subnormal}
        if counts:
            text = ", ".join(f"{count} in {name}" for name, count in counts.items())
            found.append(Flag(code="subnormals", text=f"subnormal numbers in the {where}: {text}"))
    return found


def _overhead_flags(sampling: Mapping[str, Any]) -> list[Flag]:
    share = sampling.get("loop_share", 0.0)
    if share <= OVERHEAD_SHARE:
        return []
    return [Flag(code="overhead", text=f"overhead {share:.1%}: the loop's own cost is part of the number")]


def _outliers(wall: np.ndarray, cpu: np.ndarray, nivcsw: np.ndarray, what: str = "sample") -> list[Flag]:
    if len(wall) < 3:
        return []
    median, median_cpu = float(np.median(wall)), float(np.median(cpu))
    worst = int(np.argmax(wall))
    ratio = float(wall[worst]) / median
    if ratio <= OUTLIER_FACTOR:
        return []
    where = f"{what} {worst + 1} of {len(wall)} took {ratio:.1f} x the median"
    early = worst < math.ceil(len(wall) / 3)
    if early and float(cpu[worst]) > OUTLIER_FACTOR * median_cpu:
        return [Flag(code="late_compile", text=f"{where}, computing: a compilation inside the steady phase?")]
    preempted = ", preempted by other processes" if nivcsw[worst] else ""
    return [Flag(code="outlier", text=where + preempted)]


def _trend(wall: np.ndarray) -> list[Flag]:
    """Mann-Kendall trend test, and a change large enough to matter (case: a card that heats up)."""
    n = len(wall)
    if n < TREND_SAMPLES:
        return []
    third = n // 3
    change = float(np.median(wall[-third:]) / np.median(wall[:third])) - 1
    rows, columns = np.triu_indices(n, 1)
    score = float(np.sign(wall[columns] - wall[rows]).sum())
    ties = np.unique(wall, return_counts=True)[1]
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0 or abs(change) < TREND_SHARE:
        return []
    if (abs(score) - 1) / math.sqrt(variance) < TREND_Z:
        return []
    return [Flag(code="not_stationary", text=f"not stationary ({change:+.0%} from first to last third)")]
