"""A comparison as GitHub-flavoured Markdown: the answer in sight, the rest folded.

Short enough for a pull-request comment (65,536 characters) whatever the matrix holds; a job
summary may hold more, and nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matrix.catalog.types import Catalog
from matrix.compare.comparison import Comparison
from matrix.compare.findings import Finding
from matrix.judge.rows import Word
from matrix.report.comparison import Options, words
from matrix.report.comparison.table import metric_name
from matrix.report.markdown import code, escape
from matrix.report.units import pretty

#: GitHub refuses longer comments
LIMIT = 65_536
#: rows in sight, and rows of each folded table: the first choice that fits is taken
_IN_SIGHT = 25
_FOLDED = (400, 150, 50, 15, 3, 0)
_MOST_LOCKS = 60

_IN_ORDER = (Word.REGRESSED, Word.IMPROVED, Word.INCONCLUSIVE, Word.NOT_COMPARABLE, Word.NO_WORSE)
_SIGNS = {
    Word.REGRESSED: "\U0001f534",  # a red circle
    Word.IMPROVED: "\U0001f7e2",  # a green one
    Word.NO_WORSE: "\u26aa",
    Word.INCONCLUSIVE: "\U0001f7e1",  # yellow
    Word.NOT_COMPARABLE: "\u26ab",
}


def render(comparison: Comparison, catalog: Catalog, options: Options) -> str:
    """The comment. `options.all` unfolds nothing: what is well is always there, folded."""
    del options
    text = ""
    for rows in _FOLDED:
        text = "\n".join(_lines(comparison, catalog, rows)) + "\n"
        if len(text) <= LIMIT:
            return text
    return text[: LIMIT - 1] + "\n"


def _lines(comparison: Comparison, catalog: Catalog, rows: int) -> Iterator[str]:
    counts = comparison.counts()
    said = ", ".join(f"{_SIGNS[word]} {n:,} {word.value}" for word, n in counts.items())
    yield f"### {_short(comparison.title)}"
    yield ""
    yield f"**{said or 'nothing could be compared'}**"
    yield ""
    for sentence in words.headline(comparison)[1:]:
        yield f"{escape(sentence)}  "
    failing = words.failing(comparison)
    if failing:
        yield f"This comparison {escape(failing)}."
    yield ""
    urgent = [f for f in comparison.findings if _is_urgent(f)]
    if urgent:
        yield from _table(urgent[:_IN_SIGHT], catalog)
        if len(urgent) > _IN_SIGHT:
            yield ""
            yield f"... and {len(urgent) - _IN_SIGHT:,} more of these, below."
        yield ""
    in_sight = {id(finding) for finding in urgent[:_IN_SIGHT]}
    for word in _IN_ORDER:
        rest = [finding for finding in comparison.of(word) if id(finding) not in in_sight]
        if rest:
            count = sum(not finding.derived for finding in rest)
            yield from _details(f"{_SIGNS[word]} {count:,} {word.value}", _limited(rest, catalog, rows))
    trust = words.instrument(comparison)
    if trust:
        yield from _details("How far this can be trusted", [f"- {escape(text)}" for text in trust])
    yield from _beside(comparison)


def _is_urgent(finding: Finding) -> bool:
    return not finding.derived and (
        finding.verdict is Word.REGRESSED
        or finding.missing
        or finding.state == "incorrect"
        or finding.notable
    )


def _limited(findings: Sequence[Finding], catalog: Catalog, rows: int) -> Iterator[str]:
    if rows:
        yield from _table(findings[:rows], catalog)
    if len(findings) > rows:
        yield ""
        yield f"{len(findings) - rows:,} more are in the JSON."


def _table(findings: Sequence[Finding], catalog: Catalog) -> Iterator[str]:
    yield "| | workload | metric | base → candidate | change | why |"
    yield "|---|---|---|---|---|---|"
    for finding in findings:
        change = words.change(finding).replace(words.INTERVAL, "95 %")
        cells = [
            _SIGNS[finding.verdict],
            code(finding.workload),
            escape(metric_name(finding.metric, catalog)),
            escape(pretty(words.values(finding))).replace("-&gt;", "→"),
            escape(pretty(change)),
            escape(finding.reason),
        ]
        yield f"| {' | '.join(cells)} |"


def _details(summary: str, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    yield "<details>"
    yield f"<summary>{summary}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
    yield ""


def _beside(comparison: Comparison) -> Iterator[str]:
    for name, changes in comparison.locks.items():
        if changes:
            lines = [f"- {escape(str(change))}" for change in changes[:_MOST_LOCKS]]
            if len(changes) > _MOST_LOCKS:
                lines.append(f"- {len(changes) - _MOST_LOCKS} more")
            yield from _details(
                f"{len(changes)} differences between the environments ({escape(name)})", lines
            )
    notes = [f"- {escape(warning)}" for warning in comparison.warnings]
    if comparison.unjudged:
        names = ", ".join(code(name) for name in comparison.unjudged)
        notes.append(f"- no smallest change that matters is known of {names}: `--margin METRIC=0.05`")
    if notes:
        yield from _details("Warnings", notes)


def _short(title: str) -> str:
    text = escape(title)
    return text if len(text) <= 300 else f"{text[:300]}..."
