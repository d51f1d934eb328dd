"""A comparison as data: every finding, how far the instrument is to be trusted, and the sum of it.

Pure but for reading the runs. Views and exit codes are made from this and nothing else.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from matrix.catalog.types import Catalog
from matrix.compare import fail_on
from matrix.compare.collect import collect
from matrix.compare.collected import Collected, Count
from matrix.compare.findings import Finding, of_verdict, worst_first
from matrix.compare.native import Rules
from matrix.compare.sides import Duel, Side
from matrix.environments.lock_difference import LockChange
from matrix.judge.rows import Instrument, Row, Verdict, Word
from matrix.judge.verdicts import judge
from matrix.select import Selector

LATENCY = "latency_ms"
#: pairs of environments that a title names one by one
_MOST_NAMED = 3
_NOT_INTERLEAVED = "not interleaved"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mean:
    """Geometric mean of candidate / base over the workloads that have a value on both sides."""

    metric: str
    ratio: float
    rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the base is to the candidate. `findings` are worst first."""

    duels: tuple[Duel, ...]
    findings: tuple[Finding, ...]
    instrument: Instrument
    means: tuple[Mean, ...]
    base: Count
    candidate: Count
    locks: Mapping[str, tuple[LockChange, ...]]
    warnings: tuple[str, ...]
    unjudged: tuple[str, ...]
    fail_on: tuple[str, ...] = ()
    failing: Mapping[str, int] = dataclasses.field(default_factory=dict)  # words of `fail_on` that occur
    alpha: float = 0.05

    def counts(self) -> dict[Word, int]:
        """Findings by verdict; those that repeat another metric's are not counted again."""
        found = Counter(finding.verdict for finding in self.findings if not finding.derived)
        return {word: found[word] for word in Word if found[word]}

    def of(self, word: Word) -> list[Finding]:
        """Findings of one verdict, worst first."""
        return [finding for finding in self.findings if finding.verdict is word]

    @property
    def sides(self) -> tuple[list[Side], list[Side]]:
        """The distinct bases and candidates."""
        base = {duel.base.label: duel.base for duel in self.duels if duel.base.environment}
        candidate = {
            duel.candidate.label: duel.candidate for duel in self.duels if duel.candidate.environment
        }
        return list(base.values()), list(candidate.values())

    @property
    def title(self) -> str:
        """Candidate against base, and the run where it is one and the same."""
        base, candidate = self.sides
        if len(self.duels) > _MOST_NAMED and len({duel.base.label for duel in self.duels}) == 1:
            one = self.duels[0].base  # several candidates of one run
            return f"{len(self.duels)} candidates against {one.environment}, in {one.run_name}"
        if len(self.duels) > _MOST_NAMED:
            left, right = (", ".join(dict.fromkeys(s.run_name for s in sides)) for sides in (candidate, base))
            return f"{left} against {right}, {len(self.duels)} pairs of environments"
        runs = list(dict.fromkeys(side.run_name for side in (*base, *candidate)))
        names = [
            ", ".join(side.environment if len(runs) == 1 else side.label for side in sides)
            for sides in (candidate, base)
        ]
        same = names[0] == names[1] and len(runs) == 1  # arms that differ in the variant
        said = ", ".join(duel.name for duel in self.duels) if same else f"{names[0]} against {names[1]}"
        return f"{said}, in {runs[0]}" if len(runs) == 1 else said

    @property
    def by_mde(self) -> list[Finding]:
        """Rows by the change that they could have seen, the largest first.

        Separate runs get no verdict on time, and so could have seen nothing.
        """
        known = [
            (finding.judged.mde, finding)
            for finding in self.findings
            if finding.judged is not None
            and finding.judged.mde is not None
            and finding.judged.layout != "separate-runs"
            and not finding.derived
        ]
        return [finding for _, finding in sorted(known, key=lambda item: -item[0])]


def compare(
    duels: Sequence[Duel],
    catalog: Catalog,
    *,
    margins: Mapping[str, float] | None = None,
    metrics: Sequence[str] = (),
    select: Selector | None = None,
    words: Sequence[str] = (),
    alpha: float = 0.05,
) -> Comparison:
    """Judge stored runs. Raises UsageError, StorageError."""
    rules = Rules(registry=catalog.metrics, margins=margins or {}, metrics=tuple(metrics))
    found = collect(duels, catalog, rules, select)
    judged = judge(found.rows, aa=found.aa, control=found.control, alpha=alpha)
    measured = [
        _finding(row, verdict, found) for row, verdict in zip(found.rows, judged.verdicts, strict=True)
    ]
    findings = tuple(sorted([*found.findings, *measured], key=worst_first))
    return Comparison(
        duels=tuple(duels),
        findings=findings,
        instrument=judged.instrument,
        means=means(findings),
        base=found.base,
        candidate=found.candidate,
        locks=found.locks,
        warnings=tuple(found.warnings),
        unjudged=tuple(found.unjudged),
        fail_on=tuple(words),
        failing=fail_on.occurring(findings, words),
        alpha=alpha,
    )


def means(findings: Sequence[Finding]) -> tuple[Mean, ...]:
    """The latency's mean ratio: a geometric mean, since swapping the sides must give its inverse."""
    deltas = [
        f.judged.delta for f in findings if f.metric == LATENCY and f.judged and f.judged.delta is not None
    ]
    if not deltas:
        return ()
    return (Mean(metric=LATENCY, ratio=math.exp(math.fsum(deltas) / len(deltas)), rows=len(deltas)),)


def _finding(row: Row, verdict: Verdict, found: Collected) -> Finding:
    one_sided = [bool(values) for side in row.clocks.values() for values in (side.base, side.candidate)]
    missing = found.absent_is_missing and one_sided[:1] == [True] and not one_sided[1]
    hint = found.settle.get(row.workload)
    if row.layout == "separate-runs" and verdict.verdict is Word.INCONCLUSIVE and hint:
        verdict = dataclasses.replace(verdict, reason=f"{_NOT_INTERLEAVED}: {hint}")
    return of_verdict(row, verdict, missing=missing)
