"""What a comparison says of one thing: a metric of a workload, its state, its numerics."""

from __future__ import annotations

import dataclasses
from typing import Literal

from matrix.judge.rows import Row, Verdict, Word

Kind = Literal["metric", "state", "parity"]

STATE, PARITY = "state", "parity"

#: from what must be acted on to what is well
ORDER = (Word.REGRESSED, Word.INCONCLUSIVE, Word.NOT_COMPARABLE, Word.IMPROVED, Word.NO_WORSE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a comparison.

    `base` and `candidate` are numbers in `unit`, or the words of two states. `judged` has the
    effect and its interval where there are any. `missing`: the base has it, the candidate not.
    """

    workload: str
    metric: str
    verdict: Word
    reason: str = ""
    unit: str = ""
    better: str = ""
    base: float | str | None = None
    candidate: float | str | None = None
    kind: Kind = "metric"
    judged: Verdict | None = None
    missing: bool = False
    state: str = ""  # the candidate's, where it is not ok
    notable: bool = False  # worth a line although nothing is wrong
    derived: bool = False  # repeats the verdict of another metric

    @property
    def effect(self) -> float | None:
        """The change as a fraction, worse positive."""
        return self.judged.effect if self.judged is not None else None


def of_verdict(row: Row, verdict: Verdict, *, missing: bool = False) -> Finding:
    """A row and what the judge said of it."""
    return Finding(
        workload=row.workload,
        metric=row.metric,
        verdict=verdict.verdict,
        reason=verdict.reason,
        unit=row.unit,
        better=row.better,
        base=verdict.base,
        candidate=verdict.candidate,
        judged=verdict,
        missing=missing,
        derived=bool(row.mirrors),
    )


def worst_first(finding: Finding) -> tuple[int, int, float, str, str]:
    """A sort key: by verdict, broken states before slow ones, then by size."""
    effect = finding.effect
    size = 0.0 if effect is None else -effect
    if finding.verdict is Word.IMPROVED and effect is not None:
        size = effect
    rank = 0 if finding.missing else ORDER.index(finding.verdict)
    return (rank, finding.kind != "state", size, finding.workload, finding.metric)
