"""What is no measurement: states that changed, cells that are gone, numerics that got worse.

No chance is in these, so they are judged fully even where nothing was measured side by side.
"""

from __future__ import annotations

from collections.abc import Iterator

from matrix.catalog.types import Tolerances
from matrix.compare.cells import Couple
from matrix.compare.findings import PARITY, STATE, Finding
from matrix.judge.rows import Word
from matrix.records import OPERATOR, Parity, Record
from matrix_adapters.protocol import State

#: ends of a cell that are the fault of what was measured
BROKEN = (State.INCORRECT, State.BUILD_FAILED, State.FAILED, State.OOM, State.TIMEOUT)
NOTHING = "no such cell"

#: errors that grow by more than this are told, where no tolerance rule says by how much they may vary
_GROWTH = 4.0


def state_finding(couple: Couple) -> Finding | None:
    """The state of a workload on both sides; None where it is ok on both."""
    base, candidate = couple.base, couple.candidate
    if couple.both_ok:
        return None
    words = _state(base), _state(candidate)
    verdict, reason = Word.NOT_COMPARABLE, f"{words[0]}, {words[1]}"
    if base is not None and candidate is not None:
        why = _why(candidate) or _why(base)
        if (base.xfail or candidate.xfail) and State.OK in (base.state, candidate.state):
            reason = f"{reason}; expected to fail: {candidate.xfail or base.xfail}"
        elif base.state is State.OK and candidate.state in BROKEN:
            verdict, reason = Word.REGRESSED, f"{reason}: {why}" if why else reason
        elif base.state in BROKEN and candidate.state is State.OK:
            verdict = Word.IMPROVED
        elif base.state is candidate.state:
            reason = f"{words[0]} on both sides" + (f": {why}" if why else "")
        elif why:
            reason = f"{reason}: {why}"
    return Finding(
        workload=couple.label,
        metric=STATE,
        verdict=verdict,
        reason=reason,
        base=words[0],
        candidate=words[1],
        kind="state",
        missing=base is not None and candidate is None,
        state="" if candidate is None or candidate.state is State.OK or candidate.xfail else words[1],
    )


def unmeasured_finding(couple: Couple) -> Finding:
    """Both sides work, and there is no number of either: stopped before, or what is asked for has none."""
    return Finding(
        workload=couple.label,
        metric=STATE,
        verdict=Word.INCONCLUSIVE,
        reason="ok on both sides, but nothing was measured of what is judged",
        base=State.OK.value,
        candidate=State.OK.value,
        kind="state",
    )


def parity_finding(couple: Couple, tolerances: Tolerances) -> Finding | None:
    """The numerics of a workload that is ok on both sides; None where neither was checked.

    Both passed, or a state would have changed: what is told is an error that grew by more than
    arithmetic of another order explains, and agreement that was lost within the limits.
    """
    base, candidate = couple.base, couple.candidate
    if base is None or candidate is None or not couple.both_ok:
        return None
    mine, other = base.parity, candidate.parity
    if mine is None and other is None:
        return None
    verdict, reasons = Word.NO_WORSE, []
    if mine is None or other is None:
        side = "base" if mine is None else "candidate"
        verdict, reasons = Word.NOT_COMPARABLE, [f"the outputs of the {side} were not checked"]
    elif couple.workload.level == OPERATOR:
        reasons = list(_changes_of_operator(mine, other))
    else:
        rule = tolerances.inference.get(couple.workload.precision)
        reasons = list(_changes(mine, other, rule.floor_factor if rule and rule.floor_factor else _GROWTH))
    return Finding(
        workload=couple.label,
        metric=PARITY,
        verdict=verdict,
        reason="; ".join(reasons),
        unit="1",
        better="lower",
        base=mine.max_scaled_error if mine else None,
        candidate=other.max_scaled_error if other else None,
        kind="parity",
        notable=bool(reasons),
    )


def _changes_of_operator(base: Parity, candidate: Parity) -> Iterator[str]:
    """In units of the last place: below one of them an error is rounding, whatever it is a multiple of."""
    if base.passed != candidate.passed:  # ok on both sides: the standard leaves this answer open
        now = "as the reference does, as it did not before" if candidate.passed else candidate.failure
        yield f"it answers otherwise where the standard leaves it open: {now}"
    before, after = base.max_ulps, candidate.max_ulps
    if before is not None and after is not None and after > _GROWTH * max(before, 1.0):
        yield f"the error grew from {before:.3g} to {after:.3g} ulp"


def _changes(base: Parity, candidate: Parity, growth: float) -> Iterator[str]:
    before, after = base.max_scaled_error, candidate.max_scaled_error
    if before is not None and after is not None:
        least = max(before, candidate.floor or 0.0)
        if after > growth * least:
            times = f"{after / before:.3g} times " if before > 0 else ""
            limit = f", limit {candidate.limit:.2g}" if candidate.limit is not None else ""
            yield f"the error grew to {times}what it was, {before:.2g} -> {after:.2g}{limit}"
    agreed, agrees = base.top1_agreement, candidate.top1_agreement
    if agreed is not None and agrees is not None and agrees < agreed:
        yield f"top-1 agreement fell from {agreed:.4g} to {agrees:.4g}"


def _state(record: Record | None) -> str:
    return NOTHING if record is None else record.state.value


def _why(record: Record) -> str:
    return record.reason.text if record.reason is not None and record.state is not State.OK else ""
