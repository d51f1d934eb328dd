"""From a row to series of numbers: which clock, which blocks, which of them screen or confirm.

What cannot become a series gets a word and a reason instead: a value that is missing, zero or
not a number never turns into an effect.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence

from matrix.judge.rows import Row, Sides, Stage, Values, Word

#: clocks of one metric in order of preference
PREFERRED = ("wall", "wall-clean", "device")

#: rows that share their variance: what the row calls its family, and its metric
Family = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Pairs:
    """Blocks that both sides have: logarithms of base and candidate, and what is worse by how much.

    `ratios` are candidate against base, positive where the candidate is worse.
    """

    base: Sequence[float] = ()
    candidate: Sequence[float] = ()
    ratios: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.ratios)

    def first(self, n: int) -> Pairs:
        return Pairs(self.base[:n], self.candidate[:n], self.ratios[:n])

    def only(self, kept: Sequence[int]) -> Pairs:
        return Pairs(*([column[i] for i in kept] for column in (self.base, self.candidate, self.ratios)))


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """A row that can be computed with. Without stages every block is in `screen`."""

    row: Row
    clock: str
    screen: Pairs
    confirm: Pairs = dataclasses.field(default_factory=Pairs)

    @property
    def family(self) -> Family:
        return family(self.row)

    @property
    def all(self) -> Pairs:
        a, b = self.screen, self.confirm
        return Pairs([*a.base, *b.base], [*a.candidate, *b.candidate], [*a.ratios, *b.ratios])

    @property
    def margin(self) -> float:
        return math.log1p(self.row.margin)

    @property
    def staged(self) -> bool:
        return bool(self.row.stages)


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """A row that cannot be computed with, and why."""

    row: Row
    word: Word
    reason: str
    clock: str = ""
    blocks: int = 0


def family(row: Row) -> Family:
    return row.family, row.metric


def read(row: Row, clock: str = "") -> Series | Refused:
    """The row's pairs by `clock` (see `pick`), screening blocks in the order that they were measured.

    The order is that of their labels, numbers by value, wherever the mapping keeps them. It matters
    only to rows that are looked at while they grow.
    """
    if row.not_comparable:
        return Refused(row, Word.NOT_COMPARABLE, row.not_comparable)
    name = pick(row, clock)
    sides = row.clocks.get(name)
    if sides is None:
        return Refused(row, Word.NOT_COMPARABLE, "no values on either side")
    labels = common(sides)
    pairs = _pairs(row, sides, labels)
    if pairs is None:
        return _refused(row, sides, labels, name)
    order = sorted(range(len(labels)), key=lambda i: natural(labels[i]))
    if not row.stages:
        return Series(row, name, pairs.only(order))
    confirming = {i for i in order if row.stages.get(labels[i]) is Stage.CONFIRM}
    return Series(
        row,
        name,
        pairs.only([i for i in order if i not in confirming]),
        pairs.only([i for i in order if i in confirming]),
    )


def pick(row: Row, clock: str = "") -> str:
    """The clock that judges this row: `clock` where it covers every block, else the first there is."""
    names = sorted(row.clocks, key=lambda x: (PREFERRED.index(x) if x in PREFERRED else len(PREFERRED), x))
    if not names:
        return ""
    first = names[0]
    if clock in row.clocks and set(common(row.clocks[first])) <= set(common(row.clocks[clock])):
        return clock
    return first


def common(sides: Sides) -> list[str]:
    """Labels of the blocks that both sides have."""
    return [label for label in sides.base if label in sides.candidate]


@functools.lru_cache(maxsize=4096)
def natural(label: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key: "2" before "10", "b2" before "b10"."""
    parts = re.findall(r"\d+|\D+", label)
    return tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts)


def logarithms(values: Values) -> list[float]:
    """Logarithms of one side's values that have one."""
    return [math.log(value) for value in values.values() if _valid(value)]


def bad_value(values: Values) -> str:
    """What is wrong with one side's values, in words; empty when every one has a logarithm."""
    if not any(_valid(value) for value in values.values()):
        return _nothing(values)
    bad = next((label for label, value in values.items() if not _valid(value)), None)
    return "" if bad is None else f"the value {values[bad]} in block {bad} cannot be compared"


def _pairs(row: Row, sides: Sides, labels: Sequence[str]) -> Pairs | None:
    """The pairs of these blocks; None where there is none, or some value has no logarithm."""
    try:
        base = [math.log(sides.base[x]) for x in labels]
        candidate = [math.log(sides.candidate[x]) for x in labels]
    except (TypeError, ValueError, OverflowError):
        return None
    if not labels or not math.isfinite(math.fsum(map(abs, base)) + math.fsum(map(abs, candidate))):
        return None
    above, below = (base, candidate) if row.better == "higher" else (candidate, base)
    return Pairs(base, candidate, [x - y for x, y in zip(above, below, strict=True)])


def _refused(row: Row, sides: Sides, labels: Sequence[str], clock: str) -> Refused:
    """Why there are no pairs."""
    both = (("base", sides.base), ("candidate", sides.candidate))
    for side, values in both:
        if not any(map(_valid, values.values())):
            return Refused(row, Word.NOT_COMPARABLE, f"{side}: {_nothing(values)}", clock)
    for side, values in both:
        for label in labels:
            if not _valid(values[label]):
                reason = f"{side}, block {label}: the value {values[label]} cannot be compared"
                return Refused(row, Word.INCONCLUSIVE, reason, clock, len(labels))
    return Refused(row, Word.INCONCLUSIVE, "not interleaved: the sides have no block in common", clock)


def _valid(value: object) -> bool:
    # NumPy's integers are no `int`, and its floats are `float` only by accident of width
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
    return math.isfinite(number) and number > 0


def _nothing(values: Mapping[str, float]) -> str:
    if not values:
        return "no values"
    return f"no value above zero ({next(iter(values.values()))} in block {next(iter(values))})"
