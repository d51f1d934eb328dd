"""Imported samples as cells and records, so that every view of a run shows them too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from matrix.catalog.types import Metric
from matrix.imported.samples import Samples, groups, per_launch, split_arm
from matrix.records import (
    CONTROL,
    IMPORTED,
    Cell,
    Environment,
    EnvironmentRecord,
    MetricValue,
    Record,
    Workload,
    WorkloadRecord,
    dataclasses_dict,
)
from matrix_adapters.protocol import State

_ACROSS = {"max": np.max, "min": np.min}


def workload_of(name: str) -> Workload:
    """A workload of which only the name is known; `control` is the control."""
    level = CONTROL if name == CONTROL else IMPORTED
    return Workload(level=level, subject=name, batch=0, sequence=None, precision="", threads=0, variant="")


def environment_of(name: str) -> tuple[Environment, str]:
    """An environment of which only the name is known, and its arm."""
    plain, arm = split_arm(name)
    return Environment(framework=plain, version="", hardware=""), arm


def cells_of(samples: Samples) -> tuple[Cell, ...]:
    """One cell for each environment and workload that has a sample, environments side by side."""
    return tuple(cell for cell, _ in _by_cell(samples))


def records_of(samples: Samples, registry: Mapping[str, Metric]) -> Iterator[Record]:
    """The records of `cells_of`, in its order: each metric reduced over its launches."""
    launches = per_launch(samples)
    values: dict[tuple[int, int], dict[str, MetricValue]] = {}
    starts, ends = groups(launches, ("environment", "metric", "workload"))
    keys = [launches.codes[key][starts].tolist() for key in ("environment", "metric", "workload")]
    for environment, metric, workload, start, end in zip(*keys, starts.tolist(), ends.tolist(), strict=True):
        name = samples.names["metric"][metric]
        entry = registry.get(name)
        if entry is not None:  # of a registry that knew more
            values.setdefault((environment, workload), {})[name] = _value(entry, launches.value[start:end])
    for cell, key in _by_cell(samples):
        found = values.get(key, {})
        yield Record(
            id=cell.id,
            label=cell.label,
            arm=cell.arm,
            environment=EnvironmentRecord(
                name=cell.environment.name, **dataclasses_dict(cell.environment), backend=IMPORTED
            ),
            workload=WorkloadRecord(**dataclasses_dict(cell.workload)),
            state=State.OK,
            metrics={name: found[name] for name in registry if name in found},
            attempts=0,
        )


def _by_cell(samples: Samples) -> Iterator[tuple[Cell, tuple[int, int]]]:
    environment, workload = samples.codes["environment"], samples.codes["workload"]
    pairs = np.unique(np.stack([environment, workload], axis=1), axis=0) if len(samples) else ()
    environments = [environment_of(name) for name in samples.names["environment"]]
    workloads = [workload_of(name) for name in samples.names["workload"]]
    for e, w in (tuple(pair) for pair in np.asarray(pairs).tolist()):
        place, arm = environments[e]
        yield Cell(environment=place, workload=workloads[w], arm=arm), (e, w)


def _value(entry: Metric, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> MetricValue:
    several = len(values) > 1
    return MetricValue(
        value=float(_ACROSS.get(entry.across, np.mean)(values)),
        unit=entry.unit,
        low=float(values.min()) if several else None,
        high=float(values.max()) if several else None,
        n=len(values),
        derived=bool(entry.derived),
    )
