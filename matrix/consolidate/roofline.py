"""Rates of a timed operator, and their share of what this machine can at that intensity.

The roofline of Williams, Waterman and Patterson 2009 ("Roofline: an insightful visual performance model
for multicore architectures"): min(peak arithmetic, intensity x bandwidth), both as this run measured them
with the same number of threads. Where the same data is used in every call and a cache holds it, the
bandwidth is that of a working set as large (see `matrix_adapters.bandwidth`); elsewhere, that of memory.
The share may pass 1 a little: STREAM's count leaves out what writing a line costs, and a machine has
better and worse minutes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from matrix.records import MetricValue

#: how a contract says that every call is given the same inputs
WARM = "warm"
METRICS = ("tflops", "memory_gb_s", "roofline_share")


@dataclasses.dataclass(frozen=True, slots=True)
class Roof:
    """What bounds one case: operations and bytes a second; None where it was not measured."""

    flops_s: float | None = None
    bytes_s: float | None = None
    why: str = ""  # what is missing


def roof(
    peaks: Mapping[str, Any], *, threads: int, precision: str, hardware: str, moved: int | None, cache: str
) -> Roof:
    """From a run's `peaks` (see `matrix.sweep.peaks`), for a case that moves so many bytes a call."""
    if hardware != "cpu":
        return Roof(why="peaks are measured on the CPU only")
    found = peaks.get(str(threads))
    if not isinstance(found, Mapping):
        return Roof(why=f"the peaks of this machine with {threads} threads were not measured")
    product = found.get("gemm", {}).get(precision)
    levels = sorted(found.get("bandwidth", ()), key=lambda level: float(level["bytes"]))
    flops_s = float(product["flops_s"]) if product else None
    if not levels:
        return Roof(flops_s, None, "the memory bandwidth of this machine was not measured")
    level = levels[-1]
    if cache.startswith(WARM) and moved is not None:
        level = next((one for one in levels if float(one["bytes"]) >= moved), level)
    return Roof(
        flops_s, float(level["bytes_s"]), "" if product else f"no product of matrices ran in {precision}"
    )


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
