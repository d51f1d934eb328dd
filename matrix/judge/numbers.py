"""From tested arrays to the fields of verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from matrix.judge import paired, reasons
from matrix.judge.rows import Row, Verdict, Word
from matrix.judge.series import Pairs, Series


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The tests of many rows with the blocks they were made of."""

    tested: paired.Tested
    needed: npt.NDArray[np.int64]
    pairs: Mapping[int, Pairs]  # of the rows that are shown
    flips: Mapping[int, float]

    @classmethod
    def of(cls, tested: paired.Tested, pairs: Mapping[int, Pairs]) -> Numbers:
        """`pairs`: the blocks of the rows that verdicts will be asked for, by index into the arrays."""
        flips = paired.sign_flip([one.ratios for one in pairs.values()])
        return cls(tested, paired.needed_blocks(tested), pairs, dict(zip(pairs, flips, strict=True)))

    def why_open(self, j: int, *, early: bool = False) -> str:
        """Why row j has no answer. `early`: at a look before the last, where certainty takes more."""
        t = self.tested
        if early and min(t.p_worse[j], t.p_better[j]) <= paired.TAIL:
            return reasons.early(float(t.delta[j]), int(t.n[j]))
        if not t.precise[j]:
            return reasons.imprecise(float(t.mde[j]), float(t.margin[j]))
        return reasons.undecided(float(t.low[j]), float(t.high[j]), float(t.margin[j]))

    def no_worse(self, row: Row, j: int) -> tuple[Word, str]:
        """Row j is certified; unless its calls were not steady, of which the numbers know nothing."""
        if row.unsteady:
            return Word.INCONCLUSIVE, f"unsteady: {row.unsteady}"
        t = self.tested
        real = min(t.p_worse[j], t.p_better[j]) <= paired.TAIL
        return Word.NO_WORSE, reasons.within(float(t.delta[j]), float(t.margin[j])) if real else ""

    def verdict(
        self,
        one: Series,
        j: int,
        word: Word,
        reason: str,
        *,
        screened: float | None = None,
        needed: int | None = None,
    ) -> Verdict:
        """The verdict of row j; `screened` is the log ratio that made it a suspect.

        Where nothing is decided, what would decide it stands at the end of the reason:
        `needed` more blocks, or as many as the row's variance asks for.
        """
        t, row = self.tested, one.row
        blocks = seconds = None
        if word is Word.INCONCLUSIVE and not row.unsteady:
            blocks = int(self.needed[j]) if needed is None else needed
            seconds = None if row.block_s is None else blocks * row.block_s
            reason = f"{reason}; {reasons.more(blocks, seconds)}"
        delta, low, high = float(t.delta[j]), float(t.low[j]), float(t.high[j])
        return Verdict(
            workload=row.workload,
            metric=row.metric,
            unit=row.unit,
            verdict=word,
            reason=reason,
            base=typical(self.pairs[j].base),
            candidate=typical(self.pairs[j].candidate),
            delta=delta,
            delta_low=low,
            delta_high=high,
            effect=fraction(delta),
            low=fraction(low),
            high=fraction(high),
            margin=row.margin,
            mde=fraction(float(t.mde[j])),
            n=int(t.n[j]),
            clock=one.clock,
            layout=row.layout,
            p_worse=float(t.p_worse[j]),
            p_no_worse=float(t.p_no_worse[j]),
            p_sign_flip=self.flips[j],
            screen_effect=None if screened is None else fraction(screened),
            needed_blocks=blocks,
            needed_s=seconds,
        )


def typical(logarithms: Sequence[float]) -> float | None:
    """The geometric mean of values whose logarithms these are; None of none."""
    return fraction(math.fsum(logarithms) / len(logarithms), start=0.0) if logarithms else None


def fraction(logarithm: float, *, start: float = 1.0) -> float:
    """exp(logarithm) - start, held below infinity."""
    held = min(logarithm, 709.0)
    return math.expm1(held) if start else math.exp(held)
