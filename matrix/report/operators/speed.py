"""Timed operators: latency, what was reached, its share of the machine's roof, and what the call itself costs.

A row is a case in one type with one number of threads; in it an entry for each environment. The
dispatch cost is the latency of the case with one element; an entry says which share of it that is.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.operators.suites import DISPATCH_CASE
from matrix.records import MetricValue, Record
from matrix.report.metrics import Catalog
from matrix.report.placing import Column, RowKey, place
from matrix.report.units import human
from matrix_adapters.protocol import State


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """One case in one environment. What is None has no value; the record says why."""

    record: Record
    latency: MetricValue | None = None
    tflops: MetricValue | None = None
    gb_s: MetricValue | None = None
    roofline: MetricValue | None = None
    dispatch: float | None = None  # share of the latency that a call of one element takes

    @property
    def state(self) -> State:
        return self.record.state

    def words(self) -> tuple[str, str, str, str, str]:
        """Latency, arithmetic, memory, share of the roof, share of dispatch; "-" for what is not there."""
        if self.latency is None:
            return (self.state.value.replace("_", " "), "-", "-", "-", "-")
        return (
            human(self.latency.value, "ms"),
            human(self.tflops.value, "TFLOP/s") if self.tflops else "-",
            human(self.gb_s.value, "GB/s") if self.gb_s else "-",
            percent(self.roofline.value) if self.roofline else "-",
            percent(self.dispatch) if self.dispatch is not None else "-",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class SpeedRow:
    """One case; `entries` by column, None where nothing was planned."""

    key: RowKey
    entries: tuple[Reached | None, ...]
    work: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.key.subject} {self.key.precision}"

    def facts(self, *, threads: bool) -> str:
        """Its operations and bytes, and how often its model has it."""
        parts = [f"{self.key.threads}t"] if threads else []
        if flops := self.work.get("flops"):
            parts.append(human(float(flops), "FLOP"))
        if moved := self.work.get("bytes"):
            parts.append(human(float(moved), "bytes"))
        if (count := self.work.get("count", 1)) != 1:
            parts.append(f"{count} of them in {self.work.get('model')}")
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelSum:
    """The operators of one model, each as often as it has them, in one environment, milliseconds."""

    model: str
    column: Column
    total_ms: float
    operators: tuple[tuple[str, float], ...]  # the dearest first
    missing: int  # of its different cases: without a number here


@dataclasses.dataclass(frozen=True, slots=True)
class SpeedTable:
    """All of it; `said` are sentences: the roof, and what a call costs."""

    columns: tuple[Column, ...]
    rows: tuple[SpeedRow, ...]
    said: tuple[str, ...]
    sums: tuple[ModelSum, ...]

    @property
    def several_threads(self) -> bool:
        return len({row.key.threads for row in self.rows}) > 1


HEADS = ("latency", "arithmetic", "memory", "of the roof", "dispatch")
LEGEND = (
    "arithmetic: operations / latency   memory: bytes that must move / latency   of the roof: share of "
    "min(peak, intensity x bandwidth) as measured here   dispatch: share of the latency that a call of one "
    "element takes"
)


def build(records: Sequence[Record], header: Mapping[str, Any], catalog: Catalog) -> SpeedTable | None:
    """From the records of operators; None where none of them was timed."""
    timed = {_case(record) for record in records if "latency_ms" in record.metrics}
    if not timed:
        return None
    columns, placed = place([record for record in records if _case(record) in timed], catalog)
    calls = {
        (i, key.threads): record.metrics["latency_ms"].value
        for key, cells in placed.items()
        for i, record in cells.items()
        if key.subject == DISPATCH_CASE and "latency_ms" in record.metrics
    }
    rows = []
    for key, cells in placed.items():
        entries = [
            _reached(cells[i], calls.get((i, key.threads))) if i in cells else None
            for i in range(len(columns))
        ]
        work = next((record.work for record in cells.values() if record.work), {})
        rows.append(SpeedRow(key, tuple(entries), work))
    said = (*_roof(header), *_dispatch(columns, calls))
    return SpeedTable(columns, tuple(rows), said, _sums(columns, rows))


def percent(share: float) -> str:
    """A share as people read it: "41 %", "0.3 %", "under 0.1 %"."""
    if share < 0.001:
        return "under 0.1 %"
    return f"{share:.1%}".replace("%", " %") if share < 0.0995 else f"{share:.0%}".replace("%", " %")


def _case(record: Record) -> tuple[str, str, int]:
    work = record.workload
    return (work.subject, work.precision, work.threads)


def _reached(record: Record, call_ms: float | None) -> Reached:
    latency = record.metrics.get("latency_ms")
    return Reached(
        record=record,
        latency=latency,
        tflops=record.metrics.get("tflops"),
        gb_s=record.metrics.get("memory_gb_s"),
        roofline=record.metrics.get("roofline_share"),
        dispatch=call_ms / latency.value if call_ms and latency and latency.value > 0 else None,
    )


def _roof(header: Mapping[str, Any]) -> list[str]:
    """What the machine can, by number of threads; what was not measured, and why."""
    said = []
    peaks = header.get("peaks")
    for threads, found in (peaks if isinstance(peaks, Mapping) else {}).items():
        of = f"Roof with {threads} thread{'' if str(threads) == '1' else 's'}"
        products = [
            f"{human(p['flops_s'] / 1e12, 'TFLOP/s')} in {precision} ({p['case']}, {p['environment']})"
            for precision, p in found.get("gemm", {}).items()
        ]
        memory = [
            f"{human(level['bytes_s'] / 1e9, 'GB/s')} over {human(float(level['bytes']), 'bytes')}"
            for level in found.get("bandwidth", ())
        ]
        if products or memory:
            said.append(f"{of}: {'; '.join([*products, ', '.join(memory)])}.".replace("; .", "."))
        said += [f"No peak of {name}: {why}." for name, why in found.get("absent", {}).items()]
    return said


def _dispatch(columns: Sequence[Column], calls: Mapping[tuple[int, int], float]) -> list[str]:
    if not calls:
        return []
    several = len({threads for _, threads in calls}) > 1
    each = [
        f"{human(ms, 'ms')} in {columns[i].label}{f' with {threads} threads' if several else ''}"
        for (i, threads), ms in sorted(calls.items())
    ]
    return [f"A call of one element ({DISPATCH_CASE}) takes {', '.join(each)}."]


def _sums(columns: Sequence[Column], rows: Sequence[SpeedRow]) -> tuple[ModelSum, ...]:
    models = dict.fromkeys(str(row.work["model"]) for row in rows if row.work.get("model"))
    found = []
    for model in models:
        own = [row for row in rows if row.work.get("model") == model]
        for i, column in enumerate(columns):
            by_operator: dict[str, float] = defaultdict(float)
            missing = 0
            for row in own:
                entry = row.entries[i]
                if entry is None or entry.latency is None:
                    missing += 1
                    continue
                operator = row.key.subject.partition("/")[0]
                by_operator[operator] += entry.latency.value * int(row.work.get("count", 1))
            dearest = sorted(by_operator.items(), key=lambda item: -item[1])
            if dearest:
                found.append(ModelSum(model, column, sum(by_operator.values()), tuple(dearest), missing))
    return tuple(found)


def sum_words(one: ModelSum) -> str:
    """One sentence: the sum and where it goes."""
    parts = ", ".join(f"{name} {human(ms, 'ms')}" for name, ms in one.operators[:5])
    gone = f"; {one.missing} of its cases have no number here" if one.missing else ""
    return f"Operators of {one.model} in {one.column.label}: {human(one.total_ms, 'ms')} ({parts}{gone})."
