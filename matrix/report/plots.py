"""Small pictures for one cell, as the coordinates that the page's inline SVG needs.

Samples as dots, one lane a launch; errors on a logarithmic axis; phases as shares of a bar.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

WIDTH = 640.0
LANE = 18.0
#: dots drawn for one launch; more would only be paint on paint
MOST_DOTS = 96
#: beyond this ratio of slowest to fastest sample the axis is logarithmic
_LOG_BEYOND = 8.0

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Lane:
    """The samples of one launch: dots as one path, and its median."""

    name: str
    y: float
    dots: str
    median_x: float
    count: int
    left_out: int


@dataclasses.dataclass(frozen=True, slots=True)
class Strip:
    """All launches of a cell on one axis. `low`, `high` are in the samples' unit."""

    lanes: tuple[Lane, ...]
    height: float
    low: float
    high: float
    log: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """A part of a stacked bar."""

    name: str
    seconds: float
    share: float


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorAxis:
    """Where floor, error and limit lie on a logarithmic axis, as fractions of its width."""

    ticks: tuple[tuple[float, str], ...]
    floor: float | None
    limit: float | None
    error: float | None


def strip(launches: Sequence[tuple[str, Floats]]) -> Strip | None:
    """Per-call times by launch, as dots. None without samples."""
    kept = [(name, values) for name, values in launches if len(values)]
    if not kept:
        return None
    low = min(float(v.min()) for _, v in kept)
    high = max(float(v.max()) for _, v in kept)
    log = low > 0 and high / low > _LOG_BEYOND
    lanes = []
    for i, (name, values) in enumerate(kept):
        y = LANE * i + LANE / 2
        shown = _thinned(values)
        x = _place(shown, low, high, log)
        dots = "".join(f"M{a:.0f} {y:.0f}h0" for a in x)
        median = float(_place(np.array([np.median(values)]), low, high, log)[0])
        lanes.append(Lane(name, y, dots, median, len(values), len(values) - len(shown)))
    return Strip(tuple(lanes), LANE * len(kept), low, high, log)


def stack(parts: Sequence[tuple[str, float]]) -> list[Share]:
    """Parts of a whole, in seconds, as shares; nothing where there is no whole."""
    total = math.fsum(seconds for _, seconds in parts)
    if total <= 0:
        return []
    return [Share(name, seconds, seconds / total) for name, seconds in parts if seconds > 0]


def error_axis(floor: float | None, limit: float | None, error: float | None) -> ErrorAxis | None:
    """A decade axis that holds all three with a decade to spare. None without a positive error or limit."""
    known = [v for v in (floor, limit, error) if v is not None and v > 0 and math.isfinite(v)]
    if not known or (error is None and limit is None):
        return None
    first = math.floor(math.log10(min(known))) - 1
    last = max(math.ceil(math.log10(max(known))) + 1, first + 4)
    step = max(1, (last - first) // 6)
    ticks = tuple(((d - first) / (last - first), f"1e{d:+03d}") for d in range(first, last + 1, step))

    def at(value: float | None) -> float | None:
        if value is None or not math.isfinite(value):
            return None
        return 0.0 if value <= 0 else (math.log10(value) - first) / (last - first)

    return ErrorAxis(ticks, at(floor), at(limit), at(error))


def _thinned(values: Floats) -> Floats:
    """At most MOST_DOTS of them, evenly through time, with the extremes always among them."""
    if len(values) <= MOST_DOTS:
        return values
    keep = np.linspace(0, len(values) - 1, MOST_DOTS - 2).round().astype(np.int64)
    places = np.unique(np.concatenate([keep, [values.argmin(), values.argmax()]]))
    return np.asarray(values[places], dtype=np.float64)


def _place(values: Floats, low: float, high: float, log: bool) -> Floats:
    edge = 6.0
    if high <= low:
        return np.full(len(values), WIDTH / 2)
    if log:
        values, low, high = np.log(values), math.log(low), math.log(high)
    out: Floats = edge + (values - low) / (high - low) * (WIDTH - 2 * edge)
    return out
