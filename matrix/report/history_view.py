"""The history of a metric: a line for each series with its trend, or all of it as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from tabulate import tabulate

from matrix.catalog.types import Metric
from matrix.history import History, Point, Series
from matrix.report.style import Style
from matrix.report.units import pretty, scale_for

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-=+*#@"
_GAP = "x"  # of a run in which the cell was not ok
#: runs that a trend shows, the newest
_MOST = 40
#: changes below this share are drawn as none
_FLAT = 0.02


def table(history: History, metric: Metric, style: Style, *, selected: bool = False) -> str:
    """One line a series, the ones with steps first. `selected`: not all cells were asked for."""
    if not history.series:
        return f"no stored run has a value of {metric.id}{' in the cells chosen' if selected else ''}\n"
    ordered = sorted(history.series, key=lambda series: not series.steps)
    lines = [_line(series, metric, style) for series in ordered]
    heads = ["workload", "environment", "runs", "first", "last", "trend", "steps"]
    text = tabulate(
        lines,
        headers=[style.paint(head, "bold") for head in heads],
        tablefmt="rounded_outline" if style.unicode else "simple",
        colalign=["left", "left", "right", "right", "right", "left", "left"],
        disable_numparse=True,
    )
    better = "less" if metric.better == "lower" else "more"
    said = [f"{metric.title}, {better} is better; {_count(history.runs, 'run')}"]
    if history.machine:
        said[0] += " of one machine"
    if history.left_out:
        said.append(f"{_count(history.left_out, 'run')} of other machines left out")
    said.append("a step is a hint to look: `matrix compare` judges")
    return f"{text}\n\n" + style.paint(style.plain("; ".join(said)), "dim") + "\n"


def as_json(history: History, metric: Metric) -> str:
    """All points and steps. Every number is finite or null."""
    data: dict[str, Any] = {
        "metric": metric.id,
        "unit": metric.unit,
        "better": metric.better,
        "machine": history.machine,
        "runs": history.runs,
        "left_out": history.left_out,
        "series": [dataclasses.asdict(series) for series in history.series],
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sparkline(points: tuple[Point, ...], style: Style) -> str:
    """Heights by the logarithm of the value between the least and the largest; a gap where there is none."""
    shown = points[-_MOST:]
    logs = [math.log(p.value) for p in shown if p.value is not None and p.value > 0]
    if not logs:
        return _GAP * len(shown)
    signs = _BARS if style.unicode else _PLAIN
    low, spread = min(logs), max(logs) - min(logs)
    drawn = []
    for point in shown:
        if point.value is None or point.value <= 0:
            drawn.append(_GAP)
        elif spread < _FLAT:
            drawn.append(signs[len(signs) // 2])
        else:
            drawn.append(signs[round((math.log(point.value) - low) / spread * (len(signs) - 1))])
    return "".join(drawn)


def _line(series: Series, metric: Metric, style: Style) -> list[str]:
    known = series.measured
    scale = (
        scale_for([point.value for point in (known[0], known[-1]) if point.value], metric.unit)
        if known
        else None
    )
    ends = [
        scale.text(p.value) if scale and p.value is not None else ""
        for p in ((known[0], known[-1]) if known else ())
    ]
    ends = ends or ["", ""]
    if series.points[-1].value is None:
        ends[1] = series.points[-1].state.value
    steps = "; ".join(
        f"{100 * step.change:+.1f} % in {step.run}{_version(step.version)}" for step in series.steps
    )
    texts = [
        series.workload,
        series.environment,
        str(len(series.points)),
        *map(pretty if style.unicode else str, ends),
    ]
    plain = [style.plain(text) for text in texts]
    return [*plain, sparkline(series.points, style), style.paint(style.plain(steps), "yellow")]


def _version(version: str) -> str:
    return f" ({version})" if version else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
