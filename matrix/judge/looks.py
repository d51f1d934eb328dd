"""Looking at rows while they grow: who is decided, who is suspect, who needs more blocks.

Every row has two questions, and each is decided once, at the first look that answers it:
is it worse (or certified to be worse by less than the margin), and is it better (or not).
The two are mirror images, so swapping the sides swaps the answers. A row is measured until
the first is answered; blocks that other rows of its workload then ask for change nothing.

The driver of an A/B run asks `state_of` while measuring, the judge asks `screen` of stored
blocks: the same code, so a stored run is judged as it was measured. Both see the same if the
driver asks when all its open workloads have reached the next look.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from matrix.judge import clock_choice, paired, series, spending
from matrix.judge.rows import Row, Stage
from matrix.judge.series import Family, Refused, Series

#: fewer common blocks than this decide nothing
LEAST_BLOCKS = 3

Integers = npt.NDArray[np.int64]


class Answer(enum.IntEnum):
    """To "is it worse?" (or, mirrored, "is it better?")."""

    OPEN = 0
    WITHIN = 1  # certified: by less than the margin, if at all
    SUSPECT = 2


@dataclasses.dataclass(frozen=True)
class Screen:
    """What the screening blocks said of rows; arrays int64[rows] hold an `Answer` or a look's blocks."""

    worse: Integers
    better: Integers
    worse_at: Integers  # blocks at the look that answered, 0: none did
    better_at: Integers
    last: Integers  # blocks at the last look, 0: there was none
    tested: Mapping[int, tuple[Mapping[int, int], paired.Tested]]  # by look: row -> index, and the numbers

    @property
    def suspects(self) -> list[tuple[int, int]]:
        """(row, +1 for worse or -1 for better), in the order of the rows."""
        return [
            (i, sign)
            for i in range(len(self.worse))
            for sign, answers in ((1, self.worse), (-1, self.better))
            if answers[i] == Answer.SUSPECT
        ]

    def suspect_at(self, i: int, sign: int) -> int:
        """The look that made row i a suspect of being worse (+1) or better (-1)."""
        return int((self.worse_at if sign > 0 else self.better_at)[i])

    def suspicion(self, i: int) -> tuple[int, int]:
        """Direction and look of the first suspicion of row i, which has one."""
        return min(
            (
                (sign, self.suspect_at(i, sign))
                for sign, answers in ((1, self.worse), (-1, self.better))
                if answers[i] == Answer.SUSPECT
            ),
            key=lambda x: x[1],
        )

    def delta(self, i: int, n: int) -> float:
        """The log ratio of row i at its look of n blocks."""
        index, tested = self.tested[n]
        return float(tested.delta[index[i]])

    def shown_at(self, i: int) -> int:
        """The look whose numbers stand for the row: the one that completed its answers."""
        if self.worse[i] and self.better[i]:
            return int(max(self.worse_at[i], self.better_at[i]))
        return int(self.last[i])


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """What a row still needs. `blocks` are wanted until the next look, or to confirm a suspect."""

    workload: str
    metric: str
    status: Literal["open", "decided", "suspect", "exhausted"]
    reason: str = ""
    direction: Literal["", "worse", "better"] = ""
    stage: Stage | None = None  # of the blocks wanted
    blocks: int = 0


def state_of(
    rows: Sequence[Row],
    *,
    aa: Sequence[Row] = (),
    looks: tuple[int, ...] = spending.LOOKS,
    alpha: float = 0.05,
) -> tuple[State, ...]:
    """What every row still needs, in the order of the rows; for rows with or without stages yet.

    Between two looks nothing is decided. A suspect whose confirming blocks are there is
    `decided`: only `judge` may look at them. A derived row (`mirrors`) asks for nothing.
    `exhausted`: all looks were had and none decided. `alpha` is what the comparison may err; it
    says how many blocks confirm a suspect. Suspects are made at a level of their own, 2.5 % for
    each direction, so that a stored run can be judged by another alpha.
    """
    clocks = clock_choice.preferred(rows, aa, most=looks[-1])
    found: dict[int, Series] = {}
    states: dict[int, State] = {}
    for i, row in enumerate(rows):
        read = series.read(row, clocks.get(series.family(row), ""))
        if isinstance(read, Series) and not row.fixed and not row.mirrors:
            found[i] = read
        elif isinstance(read, Series) or row.not_comparable or row.fixed or row.mirrors:
            states[i] = _state(row, "decided", reason=row.not_comparable)
        else:
            states[i] = _state_without_series(row, read, looks[0])
    members = list(found.values())
    screening = screen(members, looks=looks, final=False)
    suspects = len(screening.suspects)
    for k, i in enumerate(found):
        states[i] = _state_of(k, members[k], screening, looks=looks, suspects=suspects, alpha=alpha)
    return tuple(states[i] for i in range(len(rows)))


def _state_without_series(row: Row, read: Refused, first: int) -> State:
    """More blocks help only while there are few: a value that cannot be compared stays."""
    have = max((len(x) for sides in row.clocks.values() for x in (sides.base, sides.candidate)), default=0)
    if have < first and not read.blocks:
        return _state(row, "open", reason=read.reason, stage=Stage.SCREEN, blocks=first - have)
    return _state(row, "exhausted", reason=read.reason)


def _state_of(
    k: int, one: Series, screening: Screen, *, looks: tuple[int, ...], suspects: int, alpha: float
) -> State:
    row = one.row
    for sign, at in ((1, screening.worse_at[k]), (-1, screening.better_at[k])):
        if (screening.worse if sign > 0 else screening.better)[k] == Answer.SUSPECT:
            wanted = confirm_wanted(k, sign, screening, suspects, alpha) - len(one.confirm)
            if wanted <= 0:
                return _state(row, "decided", reason="its confirming blocks are there")
            return _state(
                row,
                "suspect",
                reason=f"after {at} blocks",
                direction="worse" if sign > 0 else "better",
                stage=Stage.CONFIRM,
                blocks=wanted,
            )
    if screening.worse[k] == Answer.WITHIN:
        return _state(row, "decided", reason=f"no worse after {screening.worse_at[k]} blocks")
    have = len(one.screen)
    if have >= looks[-1]:
        return _state(row, "exhausted", reason=f"not decided after {looks[-1]} blocks")
    measured = sum(stage is Stage.SCREEN for stage in row.stages.values())
    if measured >= looks[0] + 2 * have:
        return _state(row, "exhausted", reason=f"only {have} of {measured} blocks have a value on both sides")
    return _state(row, "open", stage=Stage.SCREEN, blocks=next(n for n in looks if n > have) - have)


def _state(
    row: Row,
    status: Literal["open", "decided", "suspect", "exhausted"],
    *,
    reason: str = "",
    direction: Literal["", "worse", "better"] = "",
    stage: Stage | None = None,
    blocks: int = 0,
) -> State:
    return State(
        workload=row.workload,
        metric=row.metric,
        status=status,
        reason=reason,
        direction=direction,
        stage=stage,
        blocks=blocks,
    )


def confirm_wanted(k: int, sign: int, screening: Screen, suspects: int, alpha: float) -> int:
    """Confirming blocks that a suspect needs, from what its screening blocks said."""
    index, tested = screening.tested[screening.suspect_at(k, sign)]
    j = index[k]
    return spending.confirm_blocks(
        float(tested.s[j]), sign * float(tested.delta[j]), float(tested.se[j]), suspects, alpha
    )


def screen(
    rows: Sequence[Series],
    *,
    looks: tuple[int, ...] = spending.LOOKS,
    final: bool = True,
) -> Screen:
    """Replay the looks at the screening blocks of `rows`; confirming blocks are not looked at.

    `final` says that no more blocks will come: a row that ended between two looks gets a last
    look at what there is, at the level that is its share. Otherwise there is no look off schedule.
    """
    count = len(rows)
    worse, better = np.zeros(count, np.int64), np.zeros(count, np.int64)
    worse_at, better_at, last = (np.zeros(count, np.int64) for _ in range(3))
    schedule: dict[int, list[int]] = {}
    for k, one in enumerate(rows):
        for n in _looks_of(len(one.screen), looks, final):
            schedule.setdefault(n, []).append(k)
    tested: dict[int, tuple[Mapping[int, int], paired.Tested]] = {}
    for n, members in sorted(schedule.items()):
        mine = np.array(members)
        now = test_ratios(
            [rows[k].screen.ratios[:n] for k in members],
            [rows[k] for k in members],
            priors(rows, n),
        )
        tested[n] = ({k: j for j, k in enumerate(members)}, now)
        last[mine] = n
        level = _level(n, looks)
        for answers, at, p, within in (
            (worse, worse_at, now.p_worse, now.within_above(level)),
            (better, better_at, now.p_better, now.within_below(level)),
        ):
            said = np.where(within, Answer.WITHIN, np.where(p <= level, Answer.SUSPECT, Answer.OPEN))
            fresh = (answers[mine] == Answer.OPEN) & (said != Answer.OPEN)
            answers[mine[fresh]], at[mine[fresh]] = said[fresh], n
    return Screen(worse, better, worse_at, better_at, last, tested)


def _looks_of(blocks: int, looks: tuple[int, ...], final: bool) -> list[int]:
    had = [n for n in looks if n <= blocks]
    if final and LEAST_BLOCKS <= blocks < looks[-1] and blocks not in looks:
        had.append(blocks)
    return had


def _level(n: int, looks: tuple[int, ...]) -> float:
    """Nominal one-sided level of a look, the same to certify and to suspect, in either direction."""
    path = (*(x for x in looks if x < n), n)
    return spending.nominal_levels(path, paired.TAIL, looks[-1])[-1]


def priors(rows: Sequence[Series], most: int | None = None) -> dict[Family, paired.Prior]:
    """What each family knows of its variance from its rows' screening blocks, the first `most` of them."""
    variances: dict[Family, list[tuple[float, int]]] = {}
    for one in rows:
        ratios = one.screen.ratios[:most]
        if len(ratios) >= 2:
            variances.setdefault(one.family, []).append((paired.moments(ratios)[1], len(ratios) - 1))
    return {
        family: paired.prior(np.array([s2 for s2, _ in found]), np.array([float(f) for _, f in found]))
        for family, found in variances.items()
    }


def test_ratios(
    ratios: Sequence[Sequence[float]], rows: Sequence[Series], known: Mapping[Family, paired.Prior]
) -> paired.Tested:
    """The paired test of each row's log ratios (two or more), with its family's prior."""
    found = [paired.moments(one) for one in ratios]
    mine = [known.get(one.family, paired.Prior()) for one in rows]
    return paired.test(
        n=np.array([float(len(one)) for one in ratios]),
        delta=np.array([mean for mean, _ in found]),
        variance=np.array([s2 for _, s2 in found]),
        margin=np.array([one.margin for one in rows]),
        prior_df=np.array([one.df for one in mine]),
        prior_variance=np.array([one.variance for one in mine]),
    )
