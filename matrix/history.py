"""What a metric did over stored runs: one series for each workload and kind of environment.

Runs of one machine only, in the order in which they were made. A step is a hint to look, never
a verdict: the runs were made at other times, and the machine may have been another one in all
but name. `matrix compare` and `matrix upgrade` give verdicts.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from matrix.catalog.types import Metric
from matrix.compare.cells import fields_of, label_of
from matrix.consolidate.stored import records_of
from matrix.errors import StorageError
from matrix.records import CONTROL, Record
from matrix.select import Selector
from matrix.store.formats import RunHeader
from matrix.store.runs import StoredRun
from matrix_adapters.protocol import State

#: runs on either side of a step, at most and at least
WINDOW, LEAST = 3, 2
#: a step needs a change of this share where the metric has no smallest change that matters
_MARGIN = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One run's value. `low` and `high` are its range over launches; `value` is None where it is not ok."""

    run: str
    name: str
    created: str
    version: str
    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """From this run on the values are others, by this fraction of what they were (0.05: 5 % more)."""

    run: str
    created: str
    version: str
    change: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """One workload in one kind of environment, oldest run first."""

    environment: str  # framework and hardware; the name of an imported one
    workload: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...] = ()

    @property
    def measured(self) -> list[Point]:
        return [point for point in self.points if point.value is not None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """All series of one metric, how many runs of other machines were left out, and what could not be read."""

    metric: str
    machine: str
    series: tuple[Series, ...]
    runs: int
    left_out: int
    unreadable: tuple[str, ...] = ()


def history(folders: Sequence[Path], metric: Metric, select: Selector | None = None) -> History:
    """The series of runs of the newest run's machine; imported ones, which name none, are of any.

    A run that cannot be read hides no other.
    """
    unreadable: list[str] = []
    runs = [run for folder in folders if (run := _opened(folder, unreadable)) is not None]
    ordered = sorted(runs, key=lambda run: (run.header.created, run.id))
    machine = next((m for run in reversed(ordered) if (m := machine_of(run.header))), "")
    mine = [run for run in ordered if machine_of(run.header) in ("", machine)]
    found: dict[tuple[str, str], list[Point]] = {}
    for run in mine:
        try:
            records = records_of(run)
        except StorageError as error:
            unreadable.append(str(error))
            continue
        for record in records:
            if _counts(record, select):
                point = _point(run.header, record, metric.id)
                if point is not None:
                    found.setdefault(_key(record), []).append(point)
    return History(
        metric=metric.id,
        machine=machine,
        series=tuple(
            Series(environment=key[0], workload=key[1], points=tuple(points), steps=steps(points, metric))
            for key, points in found.items()
        ),
        runs=len(mine),
        left_out=len(ordered) - len(mine),
        unreadable=tuple(unreadable),
    )


def steps(points: Sequence[Point], metric: Metric) -> tuple[Step, ...]:
    """Where the values become others and stay so.

    A step lies between two runs where the ranges of up to three runs before and up to three after it
    (two at least on each side) do not touch, and their medians differ by more than the smallest
    change that matters. Of neighbouring places the one with the largest change is told.
    """
    known = [point for point in points if point.value is not None and point.value > 0]
    least = math.log1p(metric.margin or _MARGIN)
    found: list[tuple[int, float]] = []
    for i in range(LEAST, len(known) - LEAST + 1):
        before, after = known[max(0, i - WINDOW) : i], known[i : i + WINDOW]
        change = math.log(_middle(after) / _middle(before))
        apart = _low(after) > _high(before) or _high(after) < _low(before)
        if apart and abs(change) > least:
            found.append((i, change))
    told: list[tuple[int, float]] = []
    for i, change in found:
        if told and i - told[-1][0] < LEAST:
            if abs(change) > abs(told[-1][1]):
                told[-1] = (i, change)
        else:
            told.append((i, change))
    return tuple(
        Step(run=known[i].run, created=known[i].created, version=known[i].version, change=math.expm1(change))
        for i, change in told
    )


def machine_of(header: RunHeader) -> str:
    """The fingerprint of the machine; "" where none is stored."""
    return str(header.machine.get("identity") or "")


def _opened(folder: Path, unreadable: list[str]) -> StoredRun | None:
    try:
        return StoredRun(folder)
    except StorageError as error:
        unreadable.append(str(error))
        return None


def _counts(record: Record, select: Selector | None) -> bool:
    if record.arm or record.workload.level == CONTROL:
        return False
    return select is None or select(fields_of(record))


def _point(header: RunHeader, record: Record, metric: str) -> Point | None:
    """None where an ok cell has no such metric: that is no gap in its history."""
    value = record.metrics.get(metric) if record.state is State.OK else None
    if value is None and record.state in (State.OK, State.UNAVAILABLE, State.UNSUPPORTED):
        return None
    return Point(
        run=header.id,
        name=header.name,
        created=header.created,
        version=record.environment.version,
        state=record.state,
        value=None if value is None else value.value,
        low=None if value is None else value.low,
        high=None if value is None else value.high,
    )


def _key(record: Record) -> tuple[str, str]:
    place, work = record.environment, record.workload
    parts = [place.framework, place.hardware, *place.changes]
    variant = f" [{work.variant}]" if work.variant else ""
    return "-".join(part for part in parts if part) + variant, label_of(work)


def _middle(points: Iterable[Point]) -> float:
    return statistics.median(point.value for point in points if point.value is not None)


def _low(points: Iterable[Point]) -> float:
    return min(low for p in points if (low := p.low if p.low is not None else p.value) is not None)


def _high(points: Iterable[Point]) -> float:
    return max(high for p in points if (high := p.high if p.high is not None else p.value) is not None)
