"""Rates of a timed operator, and their share of what this machine can at that intensity.

The roofline of Williams, Waterman and Patterson 2009 ("Roofline: an insightful visual performance model
for multicore architectures"): min(peak arithmetic, intensity x bandwidth), both as this run measured them
with the same number of threads. Bandwidth is that of a working set as large as the one that the calls go
through (see `matrix_adapters.bandwidth`): data that is the same in every call may lie in a cache, inputs
that rotate do not. A share may pass 1 a little, since a machine has better and worse minutes; one that is
far above says that something was counted or measured wrongly, and is flagged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import MetricValue, ReasonRecord

METRICS = ("tflops", "memory_gb_s", "roofline_share")
#: a share that no better minute of the machine explains
IMPOSSIBLE = 1.25
#: working sets are divided into whole elements and threads: one that lacks a hundredth is as large
_AS_LARGE = 0.99


@dataclasses.dataclass(frozen=True, slots=True)
class Roof:
    """What bounds one case: operations and bytes a second; None where it was not measured."""

    flops_s: float | None = None
    bytes_s: float | None = None
    why: str = ""  # what is missing


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one call: all that it moves, those of inputs that rotate, and through how many they do."""

    moved: float | None
    rotating: float = 0.0
    working_set: float = 0.0


def traffic(moved: float | None, sampling: Mapping[str, Any]) -> Traffic:
    """`sampling`: what a timed launch says of how it called, see `matrix_adapters.rotation`."""
    copies, working_set = (
        _number(sampling.get("cache_copies")),
        _number(sampling.get("cache_working_set_bytes")),
    )
    if copies is None or working_set is None:
        return Traffic(moved)
    each = working_set / copies
    return Traffic(moved, each if moved is None else min(each, moved), working_set)


def roof(peaks: Mapping[str, Any], *, threads: int, precision: str, hardware: str, calls: Traffic) -> Roof:
    """From a run's `peaks` (see `matrix.sweep.peaks`), for a case with such calls.

    Never from peaks of another number of threads.
    """
    if hardware != "cpu":
        return Roof(why="peaks are measured on the CPU only")
    found = peaks.get(str(threads))
    if not isinstance(found, Mapping):
        return Roof(why=f"the peaks of this machine with {threads} threads were not measured")
    product = found.get("gemm", {}).get(precision)
    levels = sorted(found.get("bandwidth", ()), key=lambda level: float(level["bytes"]))
    flops_s = float(product["flops_s"]) if product else None
    bytes_s = _bandwidth(levels, calls)
    if bytes_s is None:
        return Roof(flops_s, None, "the memory bandwidth of this machine was not measured")
    return Roof(flops_s, bytes_s, "" if product else f"no product of matrices ran in {precision}")


def rates(
    latency: MetricValue, work: Mapping[str, Any], bound: Roof
) -> tuple[dict[str, MetricValue], dict[str, str]]:
    """The derived metrics of `METRICS`, and why others have no value. `work`: of one call, see `work_of`."""
    flops, moved = _number(work.get("flops")), _number(work.get("bytes"))
    metrics: dict[str, MetricValue] = {}
    absent: dict[str, str] = {}
    if latency.value <= 0:
        return {}, dict.fromkeys(METRICS, "the call took no time")
    if flops is None:
        absent["tflops"] = str(work.get("why_no_flops") or "its operations are not known")
    else:
        metrics["tflops"] = _rate(latency, flops / 1e12, "TFLOP/s")
    if moved is None:
        absent["memory_gb_s"] = str(work.get("why_no_bytes") or "its bytes are not known")
    else:
        metrics["memory_gb_s"] = _rate(latency, moved / 1e9, "GB/s")
    least = _least_seconds(flops, moved, bound)
    if isinstance(least, str):
        absent["roofline_share"] = least
    else:
        metrics["roofline_share"] = _rate(latency, least, "1")
    return metrics, absent


def flags(metrics: Mapping[str, MetricValue], work: Mapping[str, Any]) -> list[ReasonRecord]:
    """What speaks against the rates: a declared number that the shapes contradict, a share above the roof."""
    found = []
    if doubt := str(work.get("doubt") or ""):
        found.append(ReasonRecord(code="work_differs", text=doubt))
    share = metrics.get("roofline_share")
    if share is not None and share.value > IMPOSSIBLE:
        text = (
            f"it reached {share.value:.2f} of what this machine can: its operations or bytes are counted "
            "wrongly, or the machine was slower when its peaks were measured"
        )
        found.append(ReasonRecord(code="above_roof", text=text))
    return found


def _bandwidth(levels: Sequence[Mapping[str, Any]], calls: Traffic) -> float | None:
    """Bytes a second of one call: what rotates comes from where its working set lies, the rest from where it
    was left. None where no working set as large was measured."""

    def of(size: float) -> float | None:
        """What a larger working set reached, a smaller one can: a bad moment of a level is no roof."""
        large = [float(one["bytes_s"]) for one in levels if float(one["bytes"]) >= _AS_LARGE * size]
        return max(large) if large else memory

    memory = float(levels[-1]["bytes_s"]) if levels and levels[-1]["where"] == "memory" else None
    if calls.moved is None:
        return memory
    still = calls.moved - calls.rotating
    seconds = 0.0
    for amount, size in ((calls.rotating, calls.working_set), (still, still)):
        if amount:
            if (bytes_s := of(size)) is None:
                return None
            seconds += amount / bytes_s
    return calls.moved / seconds if seconds else memory


def _least_seconds(flops: float | None, moved: float | None, bound: Roof) -> float | str:
    """The time that the roof leaves one call; or why there is none. No arithmetic: bytes alone bound it."""
    if moved is None:
        return "the bytes that it has to move are not known"
    if bound.bytes_s is None or (flops is not None and bound.flops_s is None):
        return bound.why or "the peaks of this machine were not measured"
    seconds = moved / bound.bytes_s
    if flops is not None and bound.flops_s is not None:
        seconds = max(seconds, flops / bound.flops_s)
    return seconds


def _rate(latency: MetricValue, amount: float, unit: str) -> MetricValue:
    """`amount` a call over the time of a call; the range turns around."""

    def per_second(ms: float | None) -> float | None:
        return None if ms is None or ms <= 0 else amount * 1e3 / ms

    return MetricValue(
        value=amount * 1e3 / latency.value,
        unit=unit,
        low=per_second(latency.high),
        high=per_second(latency.low),
        n=latency.n,
        derived=True,
    )


def _number(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return float(value) if known else None
