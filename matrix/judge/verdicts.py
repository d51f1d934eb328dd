"""From rows to verdicts: the only place that says regressed, improved or no worse.

In this order: improved, no worse, regressed, inconclusive. Regressed and improved are mirror
images of each other. Saying "no worse" takes evidence; its absence is inconclusive.

Rows with stages were looked at while they grew: their suspects are judged by their confirming
blocks alone, with Holm's correction over all suspects of the comparison. Rows without stages
are one fixed sample, corrected over all of them. Either way a comparison in which nothing
changed says regressed or improved anywhere with probability `alpha` at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from matrix.judge import clock_choice, instrument, looks, paired, reasons, series, single, spending
from matrix.judge.looks import LEAST_BLOCKS, Answer, Screen
from matrix.judge.numbers import Numbers, typical
from matrix.judge.rows import Judged, Row, Verdict, Word
from matrix.judge.series import Family, Refused, Series


def judge(
    rows: Sequence[Row],
    *,
    aa: Sequence[Row] = (),
    control: Sequence[Row] = (),
    alpha: float = 0.05,
    schedule: tuple[int, ...] = spending.LOOKS,
) -> Judged:
    """A verdict for every row, in their order, and what the comparison knows of itself.

    `aa` are rows of the baseline against itself, `control` rows of a fixed workload; both were
    measured in the same blocks. `alpha`: probability of any false regressed or improved in the
    comparison. `schedule`: blocks at which rows with stages were looked at. Never raises for
    values that are missing, zero or not numbers: those rows say so.
    """
    clocks = clock_choice.preferred(rows, aa, most=schedule[-1])
    mirrors = _mirrors(rows)
    found: dict[int, Verdict] = {}
    staged: dict[int, Series] = {}
    plain: dict[int, Series] = {}
    for i, row in enumerate(rows):
        if i in mirrors:
            continue
        read = series.read(row, clocks.get(series.family(row), ""))
        if row.fixed and not row.not_comparable:
            found[i] = single.fixed(row)
        elif row.layout == "separate-runs" and not row.not_comparable:
            found[i] = single.separate(row, series.pick(row, clocks.get(series.family(row), "")))
        elif isinstance(read, Refused):
            found[i] = single.refused(read)
        else:
            (staged if read.staged else plain)[i] = read
    # two kinds of rows in one comparison share what it may err
    share = alpha / 2 if staged and plain else alpha
    known = looks.priors([*staged.values(), *plain.values()])
    found |= dict(zip(plain, _judge_plain([*plain.values()], share), strict=True))
    found |= dict(zip(staged, _judge_staged([*staged.values()], share, schedule, known), strict=True))
    report = instrument.check(aa, control, clocks=clocks, known=known)
    own = sorted(found)
    judged = instrument.withhold([rows[i] for i in own], [found[i] for i in own], report)
    found = dict(zip(own, judged.verdicts, strict=True))
    found |= {i: _mirrored(rows[i], found[k]) for i, k in mirrors.items()}  # taken back where its source is
    return dataclasses.replace(judged, verdicts=tuple(found[i] for i in range(len(rows))))


def _judge_plain(rows: Sequence[Series], alpha: float) -> list[Verdict]:
    """One look at all blocks of every row."""
    verdicts = {j: single.few(one, LEAST_BLOCKS) for j, one in enumerate(rows) if _too_few(one)}
    deciding = [j for j in range(len(rows)) if j not in verdicts]
    members = [rows[j] for j in deciding]
    if members:
        tested = looks.test_ratios([one.screen.ratios for one in members], members, looks.priors(members))
        numbers = Numbers.of(tested, {k: one.screen for k, one in enumerate(members)})
        words = _plain_words(numbers, members, alpha)
        for k, (j, (word, reason)) in enumerate(zip(deciding, words, strict=True)):
            verdicts[j] = numbers.verdict(rows[j], k, word, reason)
    return [verdicts[j] for j in range(len(rows))]


def _plain_words(numbers: Numbers, rows: Sequence[Series], alpha: float) -> list[tuple[Word, str]]:
    t, count = numbers.tested, len(rows)
    # both directions of every row: what is true of one is false of the other, so it costs little
    adjusted = spending.holm(np.r_[t.p_worse, t.p_better]).reshape(2, count)
    above, below = t.within_above(), t.within_below()
    worse = (t.p_worse <= paired.TAIL) & ~above
    better = (t.p_better <= paired.TAIL) & ~below
    words = []
    for k, one in enumerate(rows):
        if better[k] and adjusted[1, k] <= alpha:
            words.append((Word.IMPROVED, ""))
        elif above[k]:
            words.append(numbers.no_worse(one.row, k))
        elif worse[k] and adjusted[0, k] <= alpha:
            words.append((Word.REGRESSED, ""))
        elif worse[k] or better[k]:
            p = float(adjusted[0 if worse[k] else 1, k])
            words.append((Word.INCONCLUSIVE, reasons.by_chance(float(t.delta[k]), count, p)))
        else:
            words.append((Word.INCONCLUSIVE, numbers.why_open(k)))
    return words


def _judge_staged(
    rows: Sequence[Series], alpha: float, schedule: tuple[int, ...], known: Mapping[Family, paired.Prior]
) -> list[Verdict]:
    """The looks as they were had, then every suspect by its fresh blocks."""
    screening = looks.screen(rows, looks=schedule)
    confirmation = _confirm(rows, screening, alpha, known)
    screens = {
        n: Numbers.of(
            tested, {j: rows[k].screen.first(n) for k, j in index.items() if screening.shown_at(k) == n}
        )
        for n, (index, tested) in screening.tested.items()
    }
    verdicts = []
    for k, one in enumerate(rows):
        if not screening.last[k]:
            verdicts.append(single.few(one, LEAST_BLOCKS))
            continue
        n = screening.shown_at(k)
        numbers, j = screens[n], screening.tested[n][0][k]
        if Answer.SUSPECT in (screening.worse[k], screening.better[k]):
            if confirmation is not None and k in confirmation.at:
                verdicts.append(confirmation.verdict(one, k, screening))
            else:
                verdicts.append(_unconfirmed(one, k, screening, numbers, j, alpha=alpha))
            continue
        if screening.worse[k] == Answer.WITHIN:
            word, reason = numbers.no_worse(one.row, j)
        else:
            word, reason = Word.INCONCLUSIVE, numbers.why_open(j, early=n < schedule[-1])
        verdicts.append(numbers.verdict(one, j, word, reason))
    return verdicts


def _unconfirmed(
    one: Series, k: int, screening: Screen, numbers: Numbers, j: int, *, alpha: float
) -> Verdict:
    """A suspect without confirming blocks; one of being better may be certified as no worse all the same."""
    sign, n = screening.suspicion(k)
    have = len(one.confirm)
    reason = reasons.unconfirmed(screening.delta(k, n), None, have)
    if screening.worse[k] == Answer.WITHIN:
        word, other = numbers.no_worse(one.row, j)
        return numbers.verdict(one, j, word, reason if word is Word.NO_WORSE else other)
    wanted = looks.confirm_wanted(k, sign, screening, len(screening.suspects), alpha)
    return numbers.verdict(one, j, Word.INCONCLUSIVE, reason, needed=max(wanted - have, 1))


@dataclasses.dataclass(frozen=True)
class _Confirmation:
    """What fresh blocks say of the suspects that have them."""

    at: Mapping[int, int]  # row -> index into the numbers
    numbers: Numbers
    confirmed: frozenset[tuple[int, int]]  # (row, +1 for worse or -1 for better)

    def verdict(self, one: Series, k: int, screening: Screen) -> Verdict:
        """By the fresh blocks alone: the size that made it a suspect was chosen for being large."""
        numbers, t, j = self.numbers, self.numbers.tested, self.at[k]
        screened = screening.delta(k, screening.suspicion(k)[1])
        certified = screening.worse[k] == Answer.WITHIN and t.p_no_worse[j] <= paired.TAIL
        if (k, -1) in self.confirmed and not t.within_below()[j]:
            word, reason = Word.IMPROVED, ""
        elif certified or t.within_above()[j]:
            word, reason = numbers.no_worse(one.row, j)
        elif (k, 1) in self.confirmed:
            word, reason = Word.REGRESSED, ""
        else:
            word = Word.INCONCLUSIVE
            reason = reasons.unconfirmed(screened, float(t.delta[j]), int(t.n[j]))
        return numbers.verdict(one, j, word, reason, screened=screened)


def _confirm(
    rows: Sequence[Series], screening: Screen, alpha: float, known: Mapping[Family, paired.Prior]
) -> _Confirmation | None:
    """Holm over every suspect of the comparison; one without fresh blocks counts and is not confirmed."""
    suspects = screening.suspects
    fresh = sorted({k for k, _ in suspects if len(rows[k].confirm) >= LEAST_BLOCKS})
    if not fresh:
        return None
    at = {k: j for j, k in enumerate(fresh)}
    tested = looks.test_ratios([rows[k].confirm.ratios for k in fresh], [rows[k] for k in fresh], known)
    p = [
        float((tested.p_worse if sign > 0 else tested.p_better)[at[k]]) if k in at else 1.0
        for k, sign in suspects
    ]
    confirmed = frozenset(
        suspect
        for suspect, value, adjusted in zip(suspects, p, spending.holm(p).tolist(), strict=True)
        if value <= paired.TAIL and adjusted <= alpha
    )
    return _Confirmation(at, Numbers.of(tested, {j: rows[k].confirm for k, j in at.items()}), confirmed)


def _mirrors(rows: Sequence[Row]) -> dict[int, int]:
    """Row -> the row whose verdict it repeats, where that is there and repeats none itself."""
    places = {(row.workload, row.metric): i for i, row in enumerate(rows) if not row.mirrors}
    return {
        i: places[row.workload, row.mirrors]
        for i, row in enumerate(rows)
        if row.mirrors and not row.not_comparable and (row.workload, row.mirrors) in places
    }


def _mirrored(row: Row, verdict: Verdict) -> Verdict:
    """The same verdict in the row's own unit, its typical values from the same blocks."""
    read = series.read(row, verdict.clock)
    base = candidate = None
    if isinstance(read, Series):
        blocks = read.screen.first(verdict.n) if verdict.screen_effect is None else read.confirm
        base, candidate = typical(blocks.base), typical(blocks.candidate)
    return dataclasses.replace(
        verdict, workload=row.workload, metric=row.metric, unit=row.unit, base=base, candidate=candidate
    )


def _too_few(one: Series) -> bool:
    return len(one.screen) < LEAST_BLOCKS
