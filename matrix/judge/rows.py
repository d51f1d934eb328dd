"""What a comparison is made of: rows of paired values that go in, verdicts that come out.

A row is one workload and one metric on both sides, one value per block. How the values
were made (live pairs, launches in random order, an imported file) is for others to know;
what a verdict needs of it is in the row.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Literal

#: block label -> value in the metric's own unit, greater than zero
Values = Mapping[str, float]

Layout = Literal["live-pair", "fresh-launches", "imported", "separate-runs", "none"]


class Word(enum.StrEnum):
    """What a comparison says of one row."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    NO_WORSE = "no worse"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"


class Stage(enum.StrEnum):
    """Why a block was measured. Screening blocks choose suspects, confirming ones judge them."""

    SCREEN = "screen"
    CONFIRM = "confirm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sides:
    """One clock's values on both sides. Blocks that only one side has are no pairs."""

    base: Values
    candidate: Values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One workload and metric, base against candidate.

    `margin` is the metric's minimum effect as a fraction (0.03: 3 % worse still counts as
    no worse). `clocks` has at least one entry; for `latency_ms` it may hold "wall" and
    "wall-clean" (judged in that order of preference, chosen without looking at candidate
    against base), for everything else one entry, usually "". `stages` tells screening from
    confirming blocks; empty means that all blocks are one fixed sample. `fixed` says that
    no chance is in it (image size, parity state): judged by its margin alone.
    """

    workload: str  # unique among the rows of a metric, readable
    metric: str
    unit: str
    better: Literal["lower", "higher"]
    margin: float
    clocks: Mapping[str, Sides]
    family: str = ""  # rows of one family share their variance (hardware, level and metric)
    stages: Mapping[str, Stage] = dataclasses.field(default_factory=dict)
    layout: Layout = "live-pair"
    mirrors: str = ""  # the metric whose verdict this derived one repeats (throughput: latency)
    timing: bool = True  # whether a machine that moved explains it
    fixed: bool = False
    unsteady: str = ""  # why it may not be certified, in words
    not_comparable: str = ""  # "<field> differs: a, b"
    block_s: float | None = None  # what one more block of this workload costs, in seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is said of one row.

    `delta`, `delta_low`, `delta_high` are natural logarithms of the ratio, positive where the
    candidate is worse whatever the metric's direction: swapping the sides negates them
    exactly. `effect`, `low`, `high` are the same as fractions (exp(delta) - 1).
    """

    workload: str
    metric: str
    unit: str
    verdict: Word
    reason: str = ""
    base: float | None = None  # typical value (geometric mean over blocks), in `unit`
    candidate: float | None = None
    delta: float | None = None
    delta_low: float | None = None
    delta_high: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    mde: float | None = None  # smallest slowdown found in 80 % of cases at this precision, a fraction
    n: int = 0  # blocks
    clock: str = ""
    layout: Layout = "none"
    p_worse: float | None = None
    p_no_worse: float | None = None
    p_sign_flip: float | None = None
    screen_effect: float | None = None  # of the blocks that made it a suspect
    needed_blocks: int | None = None  # more of them, that would probably settle it
    needed_s: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instrument:
    """What the comparison knows of its own trustworthiness."""

    aa_rows: int = 0  # baseline against itself
    aa_alarms: int = 0  # of them called worse or better by the same rule
    aa_variance: float | None = None  # of delta / SE over the A/A rows; about 1 when all is well
    control_effect: float | None = None  # of the fixed control workload, a fraction
    control_low: float | None = None
    control_high: float | None = None
    common_shift: float | None = None  # median effect over rows, where the machine moved
    problems: tuple[str, ...] = ()  # sentences; empty: nothing speaks against the verdicts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """All verdicts of one comparison, in the order of the rows, and how far to trust them."""

    verdicts: tuple[Verdict, ...]
    instrument: Instrument = dataclasses.field(default_factory=Instrument)
