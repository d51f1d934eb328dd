"""A comparison as one self-contained page: no script, no request to any other place."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matrix.catalog.types import Catalog
from matrix.compare.comparison import Comparison
from matrix.compare.findings import ORDER, Finding
from matrix.judge.rows import Word
from matrix.report import templating
from matrix.report.comparison import Options, forest, words
from matrix.report.comparison.table import metric_name
from matrix.report.header import run_view
from matrix.report.units import pretty

#: rows of one verdict that a page can hold
MOST_ROWS = 1000

#: what each word promises, for those who see it for the first time
HELP = {
    Word.REGRESSED: "worse, by more than chance explains over the whole comparison, and not certified to be "
    "within the margin",
    Word.IMPROVED: "better, by more than chance explains over the whole comparison, and not certified to be "
    "within the margin",
    Word.NO_WORSE: "certified: worse by less than the margin, if at all",
    Word.INCONCLUSIVE: "neither can be said; the reason says what would settle it",
    Word.NOT_COMPARABLE: "the two sides are not the same measurement",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One finding in words."""

    workload: str
    metric: str
    values: str
    change: str
    interval: str
    blocks: str
    detectable: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Group:
    """The findings of one verdict."""

    word: Word
    key: str  # for its colour
    count: int  # as the headline counts
    more: int  # than there are lines
    lines: list[Line]
    open: bool


def render(comparison: Comparison, catalog: Catalog, options: Options) -> str:
    """The page."""
    counts = comparison.counts()
    groups = [_group(word, comparison.of(word), catalog, options) for word in ORDER]
    machine = (
        run_view(comparison.duels[0].candidate.run.header.model_dump(mode="json"))
        if comparison.duels
        else None
    )
    page = templating.render(
        "comparison.html.j2",
        comparison=comparison,
        counts=[(word, word.name.lower(), n) for word, n in counts.items()],
        headline=words.headline(comparison)[1:],
        failing=words.failing(comparison),
        instrument=words.instrument(comparison),
        forest=forest.forest(comparison.findings, catalog),
        size=forest,
        groups=[group for group in groups if group.lines],
        help=[(word, word.name.lower(), HELP[word]) for word in ORDER],
        view=machine,
        alpha=words.fraction(comparison.alpha),
    )
    return f"{page}\n"


def _group(word: Word, findings: Sequence[Finding], catalog: Catalog, options: Options) -> Group:
    lines = [_line(finding, catalog) for finding in findings[:MOST_ROWS]]
    count = sum(not finding.derived for finding in findings)
    is_open = options.all or word in (Word.REGRESSED, Word.IMPROVED) or len(findings) <= 12
    return Group(
        word=word,
        key=word.name.lower(),
        count=count,
        more=len(findings) - len(lines),
        lines=lines,
        open=is_open,
    )


def _line(finding: Finding, catalog: Catalog) -> Line:
    judged = finding.judged
    sign = -1.0 if finding.better == "higher" else 1.0
    change = "" if judged is None or judged.delta is None else words.percent(sign * judged.delta)
    return Line(
        workload=finding.workload,
        metric=metric_name(finding.metric, catalog),
        values=pretty(words.values(finding)).replace("->", "→"),
        change=pretty(change),
        interval=pretty(
            "" if judged is None else words.bounds(judged, sign).removeprefix(f"{words.INTERVAL} ")
        ),
        blocks=str(judged.n) if judged is not None and judged.n else "",
        detectable="" if judged is None or judged.mde is None else words.fraction(judged.mde),
        reason=finding.reason,
    )
