"""Which clock judges latency: chosen by the baseline against itself, never by the candidate.

A choice that sees candidate against base would choose the clock that says what one hopes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matrix.judge import distributions as dist
from matrix.judge import paired, series
from matrix.judge.rows import Row
from matrix.judge.series import PREFERRED, Family, Series


def preferred(rows: Sequence[Row], aa: Sequence[Row], *, most: int) -> dict[Family, str]:
    """(family, metric) -> clock: the first in order that can see the margin in `most` blocks.

    Judged by the pooled block variance of the baseline-against-itself rows of the same family,
    or of all families where this one has none. Where no clock can, or nothing is known: the first.
    """
    wanted = {series.family(row) for row in (*rows, *aa) if len(row.clocks) > 1}
    chosen: dict[Family, str] = {}
    for family, metric in wanted:
        metric_rows = [row for row in aa if row.metric == metric and len(row.clocks) > 1]
        mine = [row for row in metric_rows if row.family == family] or metric_rows
        chosen[family, metric] = _first_precise(mine, most)
    return chosen


def _first_precise(rows: Sequence[Row], most: int) -> str:
    """A clock that some row lacks is judged by the rows that have it; it must be most of them."""
    for clock in PREFERRED:
        having = [one for row in rows if clock in row.clocks and (one := _series(row, clock)) is not None]
        if having and 2 * len(having) > len(rows) and _detectable(having, most) <= having[0].margin:
            return clock
    return PREFERRED[0]


def _series(row: Row, clock: str) -> Series | None:
    read = series.read(row, clock)
    return read if isinstance(read, Series) and read.clock == clock and len(read.screen) > 1 else None


def _detectable(rows: Sequence[Series], most: int) -> float:
    """MDE_80 after `most` blocks, a logarithm, from the rows' pooled variance."""
    total, df = [], 0
    for one in rows:
        ratios = one.all.ratios
        _, s2 = paired.moments(ratios)
        total.append(s2 * (len(ratios) - 1))
        df += len(ratios) - 1
    quantiles = dist.t_quantile([1 - paired.TAIL, paired.POWER], most - 1)
    return float(quantiles.sum()) * math.sqrt(math.fsum(total) / df / most)
