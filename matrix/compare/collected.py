"""Everything that one comparison is made of, before any of it is judged."""

from __future__ import annotations

import dataclasses

from matrix.compare.findings import Finding
from matrix.environments.lock_difference import LockChange
from matrix.judge.rows import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count:
    """Cells of one side: how many there are, and how many are ok."""

    cells: int = 0
    ok: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(cells=self.cells + other.cells, ok=self.ok + other.ok)


@dataclasses.dataclass(kw_only=True)
class Collected:
    """Everything that the pairs of environments of one comparison hold."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    aa: list[Row] = dataclasses.field(default_factory=list)
    control: list[Row] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)
    base: Count = dataclasses.field(default_factory=Count)
    candidate: Count = dataclasses.field(default_factory=Count)
    settle: dict[str, str] = dataclasses.field(default_factory=dict)  # workload -> the command that would
    absent_is_missing: bool = False  # a metric without samples is a cell that is gone (imported)
    #: by pair of environments
    locks: dict[str, tuple[LockChange, ...]] = dataclasses.field(default_factory=dict)
    warnings: list[str] = dataclasses.field(default_factory=list)
    unjudged: list[str] = dataclasses.field(default_factory=list)  # metrics without a margin
    against_itself: set[str] = dataclasses.field(default_factory=set)  # bases whose A/A rows are in `aa`
