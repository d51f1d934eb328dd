"""From a comparison to one answer: is this version good, bad, or is that not to be told?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matrix.bisect.state import Target, Tested
from matrix.compare.comparison import Comparison
from matrix.compare.findings import STATE, Finding
from matrix.judge.bisection import Answer
from matrix.judge.rows import Word
from matrix_adapters.protocol import State

#: ends of a cell that say nothing about the version: it could not be had, or the run was stopped
_NOT_TESTED = frozenset(
    {State.BUILD_FAILED, State.UNAVAILABLE, State.UNSUPPORTED, State.INTERRUPTED, State.NOT_RUN}
)
_ANSWERS = {Word.REGRESSED: Answer.BAD, Word.NO_WORSE: Answer.GOOD, Word.IMPROVED: Answer.GOOD}


Say = Callable[[Finding, str], str]
"""A finding as a sentence, under a title."""


def answer_of(
    comparison: Comparison,
    target: Target | None,
    metric: str,
    locks: tuple[Sequence[str], Sequence[str]],
    say: Say,
) -> Tested:
    """What `comparison` (the good version against another) says of `target`.

    Without a target the worst regression is the target from now on, of `metric` where one is given.
    `locks`: of the good and of the other version. `say` makes the sentences.
    """
    run = comparison.duels[0].candidate.run.id
    if target is None:
        found = _first(comparison.findings, metric, say)
    else:
        found = _of(comparison.findings, target, say)
    return found.model_copy(update={"run": run, "good_lock": tuple(locks[0]), "lock": tuple(locks[1])})


def _first(findings: Sequence[Finding], metric: str, say: Say) -> Tested:
    asked = [f for f in findings if f.metric == metric] if metric else [f for f in findings if not f.derived]
    asked = asked or [f for f in findings if f.metric == STATE]  # nothing was measured: its state says why
    worse = [f for f in asked if _answer(f) is Answer.BAD]
    if worse:
        return _tested(worse[0], say).model_copy(
            update={
                "target": Target(workload=worse[0].workload, metric=worse[0].metric),
                "also": tuple(_said(f, say) for f in worse[1:]),
            }
        )
    unclear = [f for f in asked if _answer(f) is Answer.SKIP]
    if unclear or not asked:
        more = f" (and {len(unclear) - 1} more)" if len(unclear) > 1 else ""
        verdict = _said(unclear[0], say) + more if unclear else "nothing was measured on both sides"
        return Tested(answer=Answer.SKIP, verdict=verdict)
    if len(asked) == 1:
        return _tested(asked[0], say)
    return Tested(answer=Answer.GOOD, verdict=f"no worse in any of {len(asked)} rows")


def _of(findings: Sequence[Finding], target: Target, say: Say) -> Tested:
    mine = [f for f in findings if f.workload == target.workload]
    row = next((f for f in mine if f.metric == target.metric), None)
    if row is not None:
        return _tested(row, say)
    state = next((f for f in mine if f.metric == STATE), None)
    if state is not None:
        return Tested(answer=Answer.SKIP, verdict=_said(state, say))
    if target.metric == STATE:
        return Tested(answer=Answer.GOOD, verdict=f"{target.workload}, {STATE}: ok on both sides")
    return Tested(answer=Answer.SKIP, verdict=f"{target.workload}, {target.metric}: nothing was measured")


def _tested(finding: Finding, say: Say) -> Tested:
    judged = finding.judged
    return Tested(
        answer=_answer(finding),
        verdict=_said(finding, say),
        effect=judged.effect if judged else None,
        low=judged.low if judged else None,
        high=judged.high if judged else None,
    )


def _answer(finding: Finding) -> Answer:
    if finding.metric == STATE and finding.candidate in _NOT_TESTED:
        return Answer.SKIP
    return _ANSWERS.get(finding.verdict, Answer.SKIP)


def _said(finding: Finding, say: Say) -> str:
    return say(finding, f"{finding.workload}, {finding.metric}")
