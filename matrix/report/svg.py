"""The matrix as one picture: bars per workload, for a README or a slide.

Plain SVG, no script, no font or image from elsewhere. It brings its own light card, so that it
reads the same on a dark page.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record
from matrix.report import templating
from matrix.report.chart import Bar, groups
from matrix.report.header import run_view
from matrix.report.matrix_table import Mark, MatrixTable, build
from matrix.report.metrics import PRIMARY, Catalog
from matrix.report.summary import headline
from matrix.report.units import pretty, ratio

WIDTH, EDGE = 960, 36
_TEXT_WIDTH = 190  # right of the longest bar: value and ratio
_LINE, _HEAD, _GAP, _TOP = 26, 30, 20, 92
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    """One bar with its texts, in pixels."""

    y: int
    label: str
    colour: str
    width: float | None
    low: float | None
    high: float | None
    text: str
    aside: str
    best: bool
    struck: bool
    state: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    y: int
    label: str
    height: int
    lines: tuple[_Line, ...]


def render(
    records: Sequence[Record],
    header: Mapping[str, Any],
    catalog: Catalog,
    *,
    metric: str = PRIMARY,
    baseline: str | None = None,
) -> str:
    """The picture of one metric, the latency unless told otherwise."""
    table = build(records, catalog, metric, baseline)
    view = run_view(header)
    longest = max((len(column.label) for column in table.columns), default=0)
    bar_x = EDGE + 14 + min(400, max(150, round(longest * 7.7)))  # 13 px text, about 7 px a letter
    bar_width = WIDTH - bar_x - EDGE - _TEXT_WIDTH
    drawn: list[_Group] = []
    y = _TOP
    for group in groups(table):
        lines = tuple(_line(b, y + _HEAD + i * _LINE, bar_width) for i, b in enumerate(group.bars))
        height = _HEAD + _LINE * len(lines) + 8
        drawn.append(_Group(y, _clean(group.label), height, lines))
        y += height + _GAP
    foot = [line for sentence in headline(table) for line in textwrap.wrap(pretty(sentence), 132)]
    machine = ", ".join(v if k != "cores" else f"{v} cores" for k, v in view.machine[:3])
    foot.append(", ".join(w for w in (machine, view.created) if w))
    shared = ", ".join(table.common.values())
    return templating.render(
        "matrix.svg.j2",
        width=WIDTH,
        height=y + 18 * len(foot) + 20,
        edge=EDGE,
        bar_x=bar_x,
        title=table.metric.title,
        caption=_clean("; ".join(w for w in (f"{table.metric.better} is better", shared) if w)),
        groups=drawn,
        foot=[_clean(line) for line in foot if line],
        foot_y=y + 8,
        description=_clean(_describe(table)),
        has_range=any(line.low is not None for group in drawn for line in group.lines),
    )


def _line(bar: Bar, y: int, bar_width: int) -> _Line:
    cell = bar.cell
    aside = ""
    if cell.mark is Mark.TIED:
        aside = "overlaps the best"
    elif cell.ratio is not None and not bar.best:
        aside = pretty(ratio(cell.ratio))
    elif cell.struck:
        aside = "incorrect"
    elif cell.value is not None and cell.why:
        aside = "not ranked"
    flags = len(cell.record.flags)
    if flags and not cell.struck:
        aside = f"{aside}, flagged" if aside else "flagged"
    return _Line(
        y=y,
        label=_clean(bar.label),
        colour=bar.colour,
        width=None if bar.length is None else bar.length * bar_width,
        low=None if bar.low is None else bar.low * bar_width,
        high=None if bar.high is None else bar.high * bar_width,
        text=pretty(cell.text).replace("_", " "),
        aside=aside,
        best=bar.best,
        struck=cell.struck,
        state=cell.state.value.replace("_", " "),
    )


def _describe(table: MatrixTable) -> str:
    """What the picture shows, for those who cannot see it."""
    said = []
    for row in table.rows:
        cells = [
            f"{table.columns[i].label} {c.state.value if c.struck or c.value is None else c.text}"
            for i, c in enumerate(row.cells)
            if c is not None
        ]
        said.append(f"{table.row_label(row)}: {', '.join(cells)}")
    return ". ".join(said)


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
