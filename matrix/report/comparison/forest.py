"""Effects and their intervals as a picture: one line a finding, worst first, in logarithms.

The scale is symmetric about no change, so that x2 and x0.5 are equally far; what lies beyond it
is drawn as an arrow at its edge.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from matrix.catalog.types import Catalog
from matrix.compare.findings import Finding
from matrix.report.comparison import words
from matrix.report.comparison.table import metric_name
from matrix.report.units import pretty

WIDTH, PLOT_X, PLOT_WIDTH = 1180, 400, 520
LINE, TOP = 24, 30
MOST = 60
_LETTERS = 54
#: the scale shows all but the most extreme of the intervals
_SHOWN = 0.9
_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 9.0, 99.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """One finding, in pixels."""

    y: int
    label: str
    word: str  # of the verdict, for its colour
    x: float
    low: float | None
    high: float | None
    beyond: int  # -1, 1: the point lies beyond that edge
    band_low: float  # the margin
    band_width: float
    text: str
    title: str


@dataclasses.dataclass(frozen=True, slots=True)
class Forest:
    """The whole picture."""

    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float
    height: int
    left_out: int


def forest(findings: Sequence[Finding], catalog: Catalog) -> Forest | None:
    """None where nothing has an effect."""
    known = [f for f in findings if f.judged is not None and f.judged.delta is not None and not f.derived]
    shown = known[:MOST]
    if not shown:
        return None
    reach = _reach(shown)

    def place(delta: float) -> float:
        return PLOT_X + PLOT_WIDTH * (0.5 + max(-0.5, min(0.5, delta / (2 * reach))))

    marks = []
    for i, finding in enumerate(shown):
        judged = finding.judged
        assert judged is not None and judged.delta is not None  # noqa: S101 (chosen so)
        margin = math.log1p(judged.margin or 0.0)
        marks.append(
            Mark(
                y=TOP + i * LINE + LINE // 2,
                label=_shorter(f"{finding.workload} · {metric_name(finding.metric, catalog)}"),
                word=finding.verdict.name.lower(),
                x=place(judged.delta),
                low=None if judged.delta_low is None else place(judged.delta_low),
                high=None if judged.delta_high is None else place(judged.delta_high),
                beyond=0 if abs(judged.delta) <= reach else (1 if judged.delta > 0 else -1),
                band_low=place(-margin),
                band_width=place(margin) - place(-margin),
                text=pretty(words.percent(judged.delta)),
                title=pretty(words.sentence(finding, finding.workload)),
            )
        )
    ticks = [0.0, *(t for share in _ticks(reach) for t in (math.log1p(share), -math.log1p(share)))]
    return Forest(
        marks=tuple(marks),
        ticks=tuple((place(t), words.percent(t) if t else "no change") for t in ticks),
        zero=place(0.0),
        height=TOP + LINE * len(marks) + 12,
        left_out=len(known) - len(shown),
    )


def _reach(findings: Sequence[Finding]) -> float:
    """How far the scale goes on either side, as a logarithm."""
    ends = sorted(
        max(abs(v) for v in (f.judged.delta, f.judged.delta_low, f.judged.delta_high) if v is not None)
        for f in findings
        if f.judged is not None
    )
    margins = [math.log1p(f.judged.margin) for f in findings if f.judged is not None and f.judged.margin]
    wanted = ends[int(_SHOWN * (len(ends) - 1))]
    return max(wanted * 1.05, 1.5 * max(margins, default=0.0), 1e-4)


def _ticks(reach: float) -> list[float]:
    """The largest share that fits on either side, and a second one where there is room for its text."""
    fitting = [share for share in _TICKS if math.log1p(share) <= reach * 0.98]
    found = fitting[-1:]
    found += [share for share in fitting if math.log1p(share) < 0.6 * math.log1p(fitting[-1])][-1:]
    return [share for share in found if math.log1p(share) > 0.2 * reach]


def _shorter(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
