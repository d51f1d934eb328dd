"""Timed operators: latency, what was reached, its share of the machine's roof, and what a call costs.

A row is a case in one type with one number of threads; in it an entry for each environment. The
dispatch cost is the latency of the case with one element in the same environment; beside it stands the
share of the entry's own latency that it is. Wrong answers have a time, struck through, and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.operators.suites import DISPATCH_CASE
from matrix.records import CANDIDATE, MetricValue, Record
from matrix.report.metrics import Catalog
from matrix.report.operators import speed_said
from matrix.report.placing import Column, RowKey, place
from matrix.report.units import human
from matrix_adapters.protocol import State

HEADS = ("latency", "arithmetic", "memory", "of roof", "dispatch")
LEGEND = (
    "latency: of one call, * where a flag speaks against it   arithmetic: operations / latency   "
    "memory: bytes that must move / latency   of roof: share of min(peak, intensity x bandwidth), measured "
    "in this run with as many threads   dispatch: latency of a call of one element (share of this latency)"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """One case in one environment. What is None has no value; the record says why."""

    record: Record
    latency: MetricValue | None = None
    tflops: MetricValue | None = None
    gb_s: MetricValue | None = None
    roofline: MetricValue | None = None
    call_ms: float | None = None  # of one element, in the same environment with as many threads

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def struck(self) -> bool:
        """The speed of wrong numerics: shown struck through, with nothing derived from it."""
        return self.latency is not None and self.state is not State.OK

    @property
    def dispatch(self) -> float | None:
        """The share of the latency that a call of one element takes."""
        if self.call_ms is None or self.latency is None or self.latency.value <= 0:
            return None
        return self.call_ms / self.latency.value

    @property
    def state_word(self) -> str:
        """ "" where all is well."""
        return "" if self.state is State.OK else self.state.value.replace("_", " ")

    def words(self) -> tuple[str, str, str, str, str]:
        """One for each of `HEADS`; "-" for what is not there. A wrong answer's latency is to be struck."""
        if self.latency is None:
            return (self.state_word, "-", "-", "-", "-")
        flagged = "*" if self.record.flags else ""
        latency = human(self.latency.value, "ms") + flagged
        if self.struck:
            return (latency, "-", "-", "-", "-")
        return (
            latency,
            human(self.tflops.value, "TFLOP/s") if self.tflops else "-",
            human(self.gb_s.value, "GB/s") if self.gb_s else "-",
            speed_said.percent(self.roofline.value) if self.roofline else "-",
            self._dispatch_words(),
        )

    def _dispatch_words(self) -> str:
        if self.call_ms is None or (share := self.dispatch) is None:
            return "-"
        return f"{human(self.call_ms, 'ms')} ({speed_said.percent(share)})"


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
        """Its shapes, operations and bytes, where its inputs are, and how often its model has it."""
        parts = [speed_said.threads_words(self.key.threads)] if threads else []
        parts.append(str(self.work.get("shapes") or ""))
        if flops := self.work.get("flops"):
            parts.append(human(float(flops), "FLOP"))
        if moved := self.work.get("bytes"):
            parts.append(human(float(moved), "bytes"))
        parts += dict.fromkeys(speed_said.rotation(e.record) for e in self.entries if e is not None)
        if (count := self.work.get("count", 1)) != 1:
            parts.append(f"{count} of them in {self.work.get('model')}")
        return ", ".join(part for part in parts if part)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelSum:
    """The operators of one model, each as often as it has them, in one environment, milliseconds."""

    model: str
    threads: int
    column: Column
    total_ms: float
    operators: tuple[tuple[str, float], ...]  # the dearest first
    missing: int  # of its different cases: without a right answer and a time here


@dataclasses.dataclass(frozen=True, slots=True)
class SpeedTable:
    """All of it; `said` are sentences: the roof, what a call costs, what is missing and why."""

    columns: tuple[Column, ...]
    rows: tuple[SpeedRow, ...]
    said: tuple[str, ...]
    sums: tuple[ModelSum, ...]

    @property
    def several_threads(self) -> bool:
        return len({row.key.threads for row in self.rows}) > 1

    def sentences(self) -> list[str]:
        """All that is said below the table."""
        return [*self.said, *(sum_words(one, threads=self.several_threads) for one in self.sums)]


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
        if key.subject == DISPATCH_CASE and record.state is State.OK and "latency_ms" in record.metrics
    }
    rows = []
    for key, cells in placed.items():
        entries = [
            _reached(cells[i], calls.get((i, key.threads))) if i in cells else None
            for i in range(len(columns))
        ]
        work = next((record.work for record in cells.values() if record.work), {})
        rows.append(SpeedRow(key, tuple(entries), work))
    shown = [entry.record for row in rows for entry in row.entries if entry is not None]
    said = (
        *speed_said.roof(header),
        *speed_said.dispatch(columns, calls),
        *speed_said.policies(shown),
        *speed_said.missing(shown),
        *speed_said.left_out(header),
    )
    return SpeedTable(columns, tuple(rows), said, _sums(columns, rows))


def sum_words(one: ModelSum, *, threads: bool = False) -> str:
    """One sentence: the sum and where it goes."""
    parts = ", ".join(f"{name} {human(ms, 'ms')}" for name, ms in one.operators[:5])
    gone = f"; {one.missing} of its cases have no number here" if one.missing else ""
    where = f"{one.column.label}{f' with {speed_said.threads_words(one.threads)}' if threads else ''}"
    return f"Operators of {one.model} in {where}: {human(one.total_ms, 'ms')} ({parts}{gone})."


def _case(record: Record) -> tuple[str, str, int]:
    work = record.workload
    return (work.subject, work.precision, work.threads)


def _reached(record: Record, call_ms: float | None) -> Reached:
    return Reached(
        record=record,
        latency=record.metrics.get("latency_ms"),
        tflops=record.metrics.get("tflops"),
        gb_s=record.metrics.get("memory_gb_s"),
        roofline=record.metrics.get("roofline_share"),
        call_ms=call_ms,
    )


def _sums(columns: Sequence[Column], rows: Sequence[SpeedRow]) -> tuple[ModelSum, ...]:
    models = dict.fromkeys((str(r.work["model"]), r.key.threads) for r in rows if r.work.get("model"))
    found = []
    for model, threads in models:
        own = [row for row in rows if (row.work.get("model"), row.key.threads) == (model, threads)]
        for i, column in enumerate(columns):
            if any(e.record.workload.variant.startswith(CANDIDATE) for row in own if (e := row.entries[i])):
                continue  # it has one operator of the model: `matrix operators candidates` says more
            by_operator: dict[str, float] = defaultdict(float)
            missing = 0
            for row in own:
                entry = row.entries[i]
                if entry is None or entry.latency is None or entry.struck:
                    missing += 1
                    continue
                operator = row.key.subject.partition("/")[0]
                by_operator[operator] += entry.latency.value * int(row.work.get("count", 1))
            dearest = tuple(sorted(by_operator.items(), key=lambda item: -item[1]))
            if dearest:
                found.append(ModelSum(model, threads, column, sum(by_operator.values()), dearest, missing))
    return tuple(found)
