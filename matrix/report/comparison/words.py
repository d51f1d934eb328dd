"""A comparison in words: the one place where an effect becomes a sentence.

Always told: from what to what, in which direction, how large, and between which bounds.
Numbers with their sign, the interval with its level, an improvement never as a bare percentage.
"""

from __future__ import annotations

import math

from matrix.compare.comparison import Comparison
from matrix.compare.findings import Finding
from matrix.judge.rows import Verdict, Word
from matrix.report.units import human, number, scale_for

INTERVAL = "95 % interval"
#: states of what cannot be here, or cannot be at all
_NOT_HERE = ("unsupported", "unavailable")
#: units of which the inverse is a speed
_TIMES = ("s", "ms")


def sentence(finding: Finding, title: str = "") -> str:
    """The whole finding: "12.1 ms -> 16.0 ms, +32.3 % time (x0.756 speed), 95 % interval ... , worse"."""
    parts = [text for text in (values(finding), change(finding), finding.reason) if text]
    head = f"{title}: " if title else ""
    return f"{head}{finding.verdict.value}: {'; '.join(parts)}" if parts else f"{head}{finding.verdict.value}"


def values(finding: Finding) -> str:
    """Base and candidate, "12.1 ms -> 16.0 ms"."""
    base, candidate = finding.base, finding.candidate
    if isinstance(base, str) or isinstance(candidate, str):
        return f"{base} -> {candidate}"
    known = [value for value in (base, candidate) if value is not None]
    if not known:
        return ""
    scale = scale_for(known, finding.unit, 4)
    texts = ["nothing" if value is None else scale.text(value, 4) for value in (base, candidate)]
    return f"{texts[0]} -> {texts[1]}"


def change(finding: Finding) -> str:
    """The number's own change, its inverse where that is a speed, the interval, and whether it is worse."""
    judged = finding.judged
    if judged is None or judged.delta is None:
        return ""
    sign = -1.0 if finding.better == "higher" else 1.0
    noun = noun_of(finding)
    said = f"{percent(sign * judged.delta)} {noun}"
    if finding.unit in _TIMES:
        said += f" (x{factor(-judged.delta)} speed)"
    elif finding.better == "higher":
        said += f" (x{factor(-judged.delta)})"
    interval = bounds(judged, sign)
    direction = "worse" if judged.delta > 0 else "better" if judged.delta < 0 else "no difference"
    return ", ".join(text for text in (said, interval, direction) if text)


def bounds(judged: Verdict, sign: float = 1.0) -> str:
    """The interval of the number's own change, in ascending order."""
    if judged.delta_low is None or judged.delta_high is None:
        return ""
    low, high = sorted((sign * judged.delta_low, sign * judged.delta_high))
    return f"{INTERVAL} {percent(low)} to {percent(high)}"


def noun_of(finding: Finding) -> str:
    """What changed, in a word."""
    if finding.unit in _TIMES:
        return "CPU time" if finding.metric == "cpu_time_ms" else "time"
    return {"bytes": "size", "J": "energy"}.get(finding.unit, finding.metric.partition("_")[0])


def percent(log_ratio: float) -> str:
    """A logarithm of a ratio as people say it: "+4.2 %", "-0.31 %"; a large one as a factor."""
    change = math.expm1(min(log_ratio, 700.0))
    if change >= 10:
        return f"x{number(change + 1)}"
    digits = 2 if abs(change) < 0.0095 else 1
    text = f"{100 * change:+.{digits}f} %"
    return text.replace("+0.00 %", "0.00 %").replace("-0.00 %", "0.00 %")


def factor(log_ratio: float) -> str:
    """exp of it with three digits."""
    return number(math.exp(max(-700.0, min(log_ratio, 700.0))))


def fraction(value: float) -> str:
    """A share or a margin: 0.03 is "3 %"."""
    share = 100 * value
    return f"{share:,.0f} %" if 1e3 <= share < 1e7 else f"{share:.3g} %"


def headline(comparison: Comparison) -> list[str]:
    """What everybody wants to know first, in at most five sentences."""
    counts = comparison.counts()
    said = [", ".join(f"{n:,} {word.value}" for word, n in counts.items()) or "nothing could be compared"]
    said[0] = f"{said[0]}."
    said += [f"{problem}." for problem in comparison.instrument.problems]
    for mean in comparison.means:
        rows = f"the {mean.rows:,} workloads" if mean.rows > 1 else "the one workload"
        ratio = f"x{number(mean.ratio, 4)}"
        said.append(
            f"Geometric mean of the latency's ratio, over {rows} with a value on both sides: {ratio}."
        )
    base, candidate = comparison.base, comparison.candidate
    if (base.ok, candidate.ok) != (base.cells, candidate.cells) or base.cells != candidate.cells:
        said.append(
            f"Cells that are ok: {base.ok:,} of {base.cells:,} in the base, "
            f"{candidate.ok:,} of {candidate.cells:,} in the candidate."
        )
    return said


def instrument(comparison: Comparison) -> list[str]:
    """How far the comparison is to be trusted: what it would have seen, and what it saw where nothing is."""
    said = []
    known = comparison.by_mde
    if known:
        sizes = [fraction(f.judged.mde) for f in known if f.judged is not None and f.judged.mde is not None]
        middle = f"{sizes[len(sizes) // 2]} in the middle row, " if len(sizes) > 2 else ""
        worst = f"{sizes[0]} in the worst ({known[0].workload}, {known[0].metric})"
        said.append(f"Could have been seen in 4 of 5 cases: a change of {middle}{worst}.")
    found = comparison.instrument
    if found.aa_rows:
        rows = f"{found.aa_rows:,} row{'' if found.aa_rows == 1 else 's'}"
        text = f"Baseline against itself: {found.aa_alarms:,} of {rows} would have been called changed"
        if found.aa_variance is not None:
            text += f"; variance {found.aa_variance:.2f} of what is expected (1.00)"
        said.append(f"{text}.")
    if found.control_effect is not None:
        interval = ""
        if found.control_low is not None and found.control_high is not None:
            low, high = math.log1p(found.control_low), math.log1p(found.control_high)
            interval = f", {INTERVAL} {percent(low)} to {percent(high)}"
        said.append(f"The control, a fixed workload: {percent(math.log1p(found.control_effect))}{interval}.")
    return said


def folded(comparison: Comparison) -> str:
    """What a view leaves out, in words; empty for nothing."""
    dull = [finding for finding in comparison.findings if is_dull(finding) and not finding.derived]
    well = sum(finding.verdict is Word.NO_WORSE for finding in dull)
    parts = []
    if well:
        parts.append(f"{well:,} more row{' is' if well == 1 else 's are'} no worse")
    if len(dull) > well:
        parts.append(f"{len(dull) - well:,} cannot be measured here on either side")
    return ", ".join(parts)


def failing(comparison: Comparison) -> str:
    """Which words of `--fail-on` occur; empty when none does."""
    if not comparison.failing:
        return ""
    return "fails on " + ", ".join(f"{word} ({n})" for word, n in comparison.failing.items())


def is_dull(finding: Finding) -> bool:
    """Nothing that anybody has to read: no worse, or on neither side to begin with."""
    if finding.kind == "state" and finding.base == finding.candidate and finding.base in _NOT_HERE:
        return True
    return finding.verdict is Word.NO_WORSE and not finding.notable


def value_text(value: float | str | None, unit: str) -> str:
    """One side's value for a table; empty for none."""
    if value is None:
        return ""
    return value if isinstance(value, str) else human(value, unit, 4)
