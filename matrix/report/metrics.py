"""What a view needs to know of metrics: registry entries, short names, and a cell's value of one.

Direction and unit come from the registry alone; a metric it does not know is an error, never a guess.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from matrix.errors import UsageError
from matrix.records import MetricValue, Record
from matrix_adapters.protocol import State


class Metric(Protocol):
    """A registry entry, as far as views read it."""

    @property
    def title(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def better(self) -> str: ...
    @property
    def ranked(self) -> bool: ...


class Framework(Protocol):
    """A catalog framework, as far as views read it."""

    @property
    def title(self) -> str: ...
    @property
    def default_variant(self) -> str: ...


class Catalog(Protocol):
    """The catalog, as far as views read it."""

    @property
    def metrics(self) -> Mapping[str, Any]: ...
    @property
    def frameworks(self) -> Mapping[str, Any]: ...


#: what a page or terminal shows first, in this order
DEFAULT = ("latency_ms", "time_to_first_output_s", "peak_memory_bytes", "max_scaled_error")
PRIMARY = DEFAULT[0]

#: names short enough for the left edge of a table
SHORT = {
    "latency_ms": "latency",
    "latency_ms_p90": "latency p90",
    "latency_ms_p99": "latency p99",
    "time_to_first_output_s": "first output",
    "peak_memory_bytes": "peak memory",
    "peak_device_memory_bytes": "device memory",
    "throughput_items_s": "throughput",
    "cpu_time_ms": "CPU time",
    "max_scaled_error": "error",
    "image_bytes": "disk",
    "energy_j_per_item": "energy",
    "top1_agreement": "top-1",
}

#: metrics that the parity check gives: true of an incorrect cell too
FROM_PARITY = ("max_scaled_error", "cosine", "top1_agreement")


def metric(catalog: Catalog, name: str) -> Metric:
    """The registry entry of `name`. Raises UsageError, with the nearest names, when there is none."""
    entry: Metric | None = catalog.metrics.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, list(catalog.metrics), 3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(f"no metric is called {name!r}.{hint} Known: {', '.join(catalog.metrics)}")
    return entry


def short(catalog: Catalog, name: str) -> str:
    return SHORT.get(name) or metric(catalog, name).title.lower()


def value_of(record: Record, name: str) -> MetricValue | None:
    """The cell's value of a metric, or None: never zero for what was not measured."""
    found = record.metrics.get(name)
    if found is None and record.parity is not None and name in FROM_PARITY:
        number = getattr(record.parity, name)
        return None if number is None else MetricValue(value=number, unit="1")
    return found


def present(records: Iterable[Record], catalog: Catalog) -> list[str]:
    """Metrics that the matrix can show: the primary one always, then the defaults, then in registry order."""
    kept = [record for record in records if record.state in (State.OK, State.INCORRECT)]
    known = [*DEFAULT, *(m for m in catalog.metrics if m not in DEFAULT)]
    return [m for m in known if m == PRIMARY or (m in catalog.metrics and any(value_of(r, m) for r in kept))]
