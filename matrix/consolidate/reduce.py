"""Launches to numbers: one value per metric of a cell, by the rules of the metric registry.

Within a launch the worker has already taken the median; here launches become a cell:
their mean (or largest, or smallest), with the range over launches beside it. Tail
percentiles are read from the pooled samples of all launches, and only where there are
enough of them. What has no value has a reason.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from matrix.catalog.types import Metric
from matrix.records import EnvironmentRecord, LaunchRecord, MetricValue, Parity

Samples = Mapping[str, npt.NDArray[np.int64]]
ReadSamples = Callable[[LaunchRecord], Samples]

#: phases of a launch that together are the time to its first output
FIRST_OUTPUT_PHASES = ("import_s", "load_s", "compile_s", "first_call_s")
#: the metric that the raw samples of a launch are samples of
TIMED_METRIC = "latency_ms"
#: metrics that come from the cell's parity
PARITY_METRICS = ("max_scaled_error", "max_ulps", "cosine", "top1_agreement")
#: those of them that a cell has which was checked and not timed
_CHECKED = ("max_scaled_error", "max_ulps")


class UnknownMetric(ValueError):
    """A launch reported a metric that the registry does not know: its direction cannot be guessed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timed:
    """The timed samples of one launch: milliseconds per call, float64[n], and calls per sample."""

    per_call_ms: npt.NDArray[np.float64]
    calls: int

    @property
    def spread_ms(self) -> float:
        """Distance between the quartiles."""
        low, high = np.quantile(self.per_call_ms, [0.25, 0.75])
        return float(high - low)


def timed(samples: Samples) -> Timed | None:
    """Raw samples (see `samples.npz`) per call; None when there are none."""
    wall = samples.get("wall_ns")
    if wall is None or not len(wall):
        return None
    calls = samples["calls"]
    return Timed(per_call_ms=wall / calls / 1e6, calls=int(calls.max()))


def reduce(
    registry: Mapping[str, Metric],
    launches: Sequence[LaunchRecord],
    *,
    samples: Sequence[Timed],
    batch: int,
    environment: EnvironmentRecord,
    parity: Parity | None,
    level: str = "inference",
    timed: bool = True,
) -> tuple[dict[str, MetricValue], dict[str, str]]:
    """Values by metric id, and the reasons of those that have none. Raises UnknownMetric.

    Where nothing was `timed`, the metrics of time and memory do not exist: they are not even absent.
    """
    values = _values(registry, launches)
    registry = {
        name: metric
        for name, metric in registry.items()
        if name in values or (metric.exists_at(level) and (timed or name in _CHECKED))
    }
    derived = {
        "time_to_first_output_s": _of_timed(launches, first_output_s),
        "energy_j_per_item": _of_timed(launches, lambda launch: energy_j_per_item(launch, batch)),
        "image_bytes": [float(environment.size_bytes)] if environment.size_bytes is not None else [],
        **{name: _parity_value(parity, name) for name in PARITY_METRICS},
    }
    metrics: dict[str, MetricValue] = {}
    absent = {name: why for launch in launches for name, why in launch.absent.items()}
    for name, metric in registry.items():
        found = values.get(name) or derived.get(name, [])
        if metric.across == "pooled":
            pooled = _quantile(metric, samples if metric.of == TIMED_METRIC else ())
            if isinstance(pooled, str):
                absent.setdefault(name, pooled)
            else:
                metrics[name] = pooled
        elif found:
            metrics[name] = _across(metric, found)
    if "throughput_items_s" in registry and "latency_ms" in metrics and metrics["latency_ms"].value > 0:
        metrics["throughput_items_s"] = _throughput(
            registry["throughput_items_s"], metrics["latency_ms"], batch
        )
    for name in registry:
        if name not in metrics:
            absent.setdefault(name, _WHY_ABSENT.get(name, "not measured"))
    return metrics, {name: why for name, why in absent.items() if name not in metrics}


_WHY_ABSENT = {
    "energy_j_per_item": "no energy counter was read",
    "image_bytes": "the size of the environment is not known",
    "peak_memory_bytes": "no memory launch",
    "peak_device_memory_bytes": "no memory launch, or no device memory",
    "max_scaled_error": "outputs were not judged",
    "cosine": "outputs were not judged",
    "max_ulps": "outputs were not judged, or are no floating-point numbers",
    "top1_agreement": "this model has no class scores to rank",
}


def _values(registry: Mapping[str, Metric], launches: Sequence[LaunchRecord]) -> dict[str, list[float]]:
    """One value a launch. A metric of timed launches is not mixed with what a memory launch took."""
    values: dict[str, list[float]] = {}
    for purpose in ("measure", "memory"):
        mine: dict[str, list[float]] = {}
        for launch in launches:
            if launch.purpose == purpose:
                for name, value in launch.metrics.items():
                    if name not in registry:
                        raise UnknownMetric(f"metric {name!r} is not in the registry")
                    mine.setdefault(name, []).append(value)
        values = mine | values
    return values


def _across(metric: Metric, values: Sequence[float]) -> MetricValue:
    extremes: dict[str, Callable[[Sequence[float]], float]] = {"max": max, "min": min}
    value = extremes.get(metric.across, statistics.fmean)(values)
    several = len(values) > 1
    return MetricValue(
        value=value,
        unit=metric.unit,
        low=min(values) if several else None,
        high=max(values) if several else None,
        n=len(values),
        derived=bool(metric.derived),
    )


def _quantile(metric: Metric, samples: Sequence[Timed]) -> MetricValue | str:
    """A pooled percentile, or why there is none."""
    if not samples:
        return "no samples were kept"
    if max(s.calls for s in samples) > 1:
        return "calls are too short to be timed singly: a percentile of batches is none of calls"
    pooled = np.concatenate([s.per_call_ms for s in samples])
    if len(pooled) < metric.min_samples:
        return f"{len(pooled)} samples, at least {metric.min_samples} are needed"
    value = float(np.quantile(pooled, metric.quantile or 0.5))
    return MetricValue(value=value, unit=metric.unit, n=len(pooled), derived=bool(metric.derived))


def _throughput(metric: Metric, latency: MetricValue, batch: int) -> MetricValue:
    def rate(ms: float | None) -> float | None:
        return None if ms is None else batch * 1e3 / ms

    return MetricValue(
        value=batch * 1e3 / latency.value,
        unit=metric.unit,
        low=rate(latency.high),
        high=rate(latency.low),
        n=latency.n,
        derived=True,
    )


def first_output_s(launch: LaunchRecord) -> float | None:
    """Seconds from the start of the import to the first output; None where a phase is not known."""
    needed = [phase for phase in FIRST_OUTPUT_PHASES if phase != "compile_s"]  # not every variant has it
    if not all(phase in launch.phases for phase in needed):
        return None
    return sum(launch.phases.get(phase, 0.0) for phase in FIRST_OUTPUT_PHASES)


def energy_j_per_item(launch: LaunchRecord, batch: int) -> float | None:
    """Joules of the steady phase over the items computed in it; None where no counter was read."""
    if "energy_j" not in launch.sampling:
        return None
    return float(launch.sampling["energy_j"] / (launch.sampling["calls"] * batch))


def _of_timed(launches: Sequence[LaunchRecord], value: Callable[[LaunchRecord], float | None]) -> list[float]:
    found = [value(launch) for launch in launches if launch.purpose == "measure"]
    return [number for number in found if number is not None]


def _parity_value(parity: Parity | None, name: str) -> list[float]:
    value = getattr(parity, name) if parity is not None else None
    return [] if value is None else [value]
