"""A comparison in a terminal, or plain in a pipe: worst first, what is well folded into counts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from matrix.catalog.types import Catalog
from matrix.compare.comparison import Comparison
from matrix.compare.findings import Finding
from matrix.judge.rows import Word
from matrix.report.comparison import Options, words
from matrix.report.metrics import SHORT
from matrix.report.style import Style, visible_width
from matrix.report.units import scale_for

#: a verdict's colours
_PAINT = {
    Word.REGRESSED: ("bold", "red"),
    Word.IMPROVED: ("green",),
    Word.NO_WORSE: ("green",),
    Word.INCONCLUSIVE: ("yellow",),
    Word.NOT_COMPARABLE: ("dim",),
}
_HEADS = ("verdict", "workload", "metric", "base", "candidate", "change", words.INTERVAL, "n", "detectable")
_RIGHT = ("base", "candidate", "change", "n", "detectable")
_WORKLOAD = _HEADS.index("workload")
_MOST_LOCKS = 12
_LEAST_WORKLOAD = 16
_MOST_REASONS = 12  # of those that are not asked for with --all


def render(comparison: Comparison, catalog: Catalog, options: Options) -> str:
    """The whole comparison."""
    style = options.style or Style()
    plain = style.plain
    shown = [f for f in comparison.findings if options.all or not words.is_dull(f)]
    folded = "" if options.all else words.folded(comparison)
    blocks = [style.paint(plain(comparison.title), "bold"), _table(shown, catalog, style)]
    if folded:
        blocks.append(style.paint(f"{folded}; --all shows them", "dim"))
    blocks.append(_paragraphs(words.headline(comparison), style))
    blocks.append(_paragraphs(words.instrument(comparison), style))
    most = len(shown) if options.all else _MOST_REASONS
    blocks.append("\n".join(_reasons(shown, catalog, style, most)))
    blocks.append("\n".join(_foot(comparison, style)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _table(findings: Sequence[Finding], catalog: Catalog, style: Style) -> str:
    if not findings:
        return ""
    lines = [_line(finding, catalog, style) for finding in findings]
    used = [i for i in range(len(_HEADS)) if any(line[i] for line in lines)]
    table = _fitted(lines, used, style)
    higher = [m for m in dict.fromkeys(f.metric for f in findings) if _is_higher(m, catalog)]
    if higher:
        names = ", ".join(metric_name(m, catalog) for m in higher)
        table += "\n" + style.paint(f"of {names}, more is better; of everything else, less", "dim")
    return table


def _fitted(lines: Sequence[Sequence[str]], used: Sequence[int], style: Style) -> str:
    """The first layout that fits a terminal: framed, bare, without the last column, workloads folded.

    What is read by a program keeps one line a row, however long.
    """

    def drawn(columns: Sequence[int], frame: str, limit: int | None = None) -> str:
        return tabulate(
            [[line[i] for i in columns] for line in lines],
            headers=[style.paint(_HEADS[i], "bold") for i in columns],
            tablefmt=frame,
            colalign=["right" if _HEADS[i] in _RIGHT else "left" for i in columns],
            disable_numparse=True,
            maxcolwidths=[limit if i == _WORKLOAD else None for i in columns],
        )

    if not style.unicode:
        return drawn(used, "simple")
    fewer = [i for i in used if _HEADS[i] not in ("n", "detectable")]
    for columns, frame in ((used, "rounded_outline"), (used, "simple"), (fewer, "simple")):
        table = drawn(columns, frame)
        if visible_width(table) <= style.width:
            return table
    longest = max(len(line[_WORKLOAD]) for line in lines)
    return drawn(fewer, "simple", max(_LEAST_WORKLOAD, longest - visible_width(table) + style.width))


def _is_higher(metric: str, catalog: Catalog) -> bool:
    entry = catalog.metrics.get(metric)
    return entry is not None and entry.better == "higher"


def _line(finding: Finding, catalog: Catalog, style: Style) -> list[str]:
    judged = finding.judged
    base, candidate = _values(finding)
    change = interval = visible = count = ""
    if judged is not None:
        sign = -1.0 if finding.better == "higher" else 1.0
        change = "" if judged.delta is None else words.percent(sign * judged.delta)
        interval = words.bounds(judged, sign).removeprefix(f"{words.INTERVAL} ")
        visible = "" if judged.mde is None else words.fraction(judged.mde)
        count = str(judged.n) if judged.n else ""
    verdict = style.paint(finding.verdict.value, *_PAINT[finding.verdict])
    metric = metric_name(finding.metric, catalog)
    texts = [finding.workload, metric, base, candidate, change, interval, count, visible]
    return [verdict, *(style.plain(text) for text in texts)]


def _values(finding: Finding) -> tuple[str, str]:
    """Base and candidate in one unit."""
    numbers = [v for v in (finding.base, finding.candidate) if isinstance(v, (int, float))]
    scale = scale_for(numbers, finding.unit, 4) if numbers else None
    base, candidate = (
        "" if v is None else v if isinstance(v, str) else scale.text(v, 4) if scale else ""
        for v in (finding.base, finding.candidate)
    )
    return base, candidate


def metric_name(metric: str, catalog: Catalog) -> str:
    """Short enough for a column."""
    if metric in SHORT:
        return SHORT[metric]
    entry = catalog.metrics.get(metric)
    return metric if entry is None else entry.title[0].lower() + entry.title[1:]


def _reasons(findings: Sequence[Finding], catalog: Catalog, style: Style, most: int) -> Iterator[str]:
    """Why, by verdict; what several rows have in common is said once."""
    said: dict[tuple[Word, str], list[str]] = {}
    for finding in findings:
        if finding.reason and not finding.derived:
            name = f"{finding.workload} {metric_name(finding.metric, catalog)}"
            said.setdefault((finding.verdict, finding.reason), []).append(name)
    for (verdict, reason), names in list(said.items())[:most]:
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        text = style.plain(f"{', '.join(names[:3])}{more}: {reason}")
        first, *rest = textwrap.wrap(text, max(20, style.width - 16)) or [""]
        yield style.paint(f"{verdict.value:<16}", *_PAINT[verdict]) + first
        yield from (f"{'':16}{line}" for line in rest)
    if len(said) > most:
        yield f"... and {len(said) - most:,} more reasons: --all, or the reports, have them"


def _foot(comparison: Comparison, style: Style) -> Iterator[str]:
    for name, changes in comparison.locks.items():
        if changes:
            texts = [str(change) for change in changes[:_MOST_LOCKS]]
            texts += [f"{len(changes) - _MOST_LOCKS} more"] if len(changes) > _MOST_LOCKS else []
            where = f" ({name})" if len(comparison.locks) > 1 else ""
            yield from _fact("differs", f"{', '.join(texts)}{where}", style)
    if comparison.unjudged:
        names = ", ".join(comparison.unjudged)
        yield from _fact("unjudged", f"{names}: no smallest change that matters; --margin METRIC=0.05", style)
    for warning in comparison.warnings:
        yield from _fact("warning", warning, style)
    failing = words.failing(comparison)
    if failing:
        yield style.paint(failing, "bold", "red")


def _fact(name: str, text: str, style: Style) -> Iterator[str]:
    first, *rest = textwrap.wrap(style.plain(text), max(20, style.width - 10)) or [""]
    yield style.paint(f"{name:<10}", "yellow" if name == "warning" else "dim") + first
    yield from (f"{'':10}{line}" for line in rest)


def _paragraphs(sentences: Sequence[str], style: Style) -> str:
    return "\n".join(textwrap.fill(style.plain(text), style.width) for text in sentences)
