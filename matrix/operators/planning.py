"""Cells of operator cases: the columns of a sweep times the cases that it names."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import psutil

from matrix.catalog.types import Framework
from matrix.machine.cgroup import read_limits
from matrix.operators.expand import CatalogCase
from matrix.operators.shapes import needed_bytes
from matrix.records import OPERATOR, Cell, Environment, Workload
from matrix_adapters.protocol import Reason, State

#: of the memory that is free: two batches run at once, and each may meet its largest case
MEMORY_SHARE = 0.5

Verdict = tuple[State, Reason] | None


class Column(Protocol):
    """One environment of the sweep, with what is known of it before any workload."""

    framework: Framework
    environment: Environment
    variants: tuple[str, ...]
    title: str  # "PyTorch on CPU"
    fixed: Verdict  # the hardware does not exist for it
    absent: Verdict  # the device is not here


class Candidate(Protocol):
    """A user's own implementation of an operator: one more column of its framework."""

    @property
    def operator(self) -> str: ...
    @property
    def framework(self) -> str: ...
    @property
    def variant(self) -> str: ...


_Column = TypeVar("_Column", bound=Column)


def operator_cells(
    cases: Iterable[CatalogCase],
    columns: Iterable[Column],
    threads: Iterable[int],
    crowded: Callable[[int], Verdict],
    *,
    memory_limit: int | None = None,
) -> Iterator[Cell]:
    """Every case in every column, in a readable order: the columns of a case together.

    `crowded` says what is wrong with a number of threads. A case that needs more than
    `memory_limit` bytes (a share of what is free here, where none is given) is `unavailable`.
    """
    limit = usable_memory() if memory_limit is None else memory_limit
    known = [(column, variants, _fixed(column)) for column, variants in _distinct(columns)]
    counts = list(dict.fromkeys(threads))
    for case in cases:
        too_large = _too_large(case, limit)
        for count in counts:
            for column, variants, fixed in known:
                state, reason = fixed or too_large or column.absent or crowded(count) or (None, None)
                for variant in variants:
                    yield Cell(
                        environment=column.environment,
                        workload=Workload(
                            level=OPERATOR,
                            subject=case.case.name,
                            batch=1,
                            sequence=None,
                            precision=case.precision,
                            threads=count,
                            variant=variant,
                        ),
                        timed=case.timed,
                        state=state,
                        reason=reason,
                    )


def with_candidates(
    candidates: Iterable[Candidate], cases: Sequence[CatalogCase], columns: Sequence[_Column]
) -> Iterator[tuple[list[CatalogCase], list[_Column]]]:
    """For each candidate all cases of its operator, and the columns of its framework with it in them."""
    for candidate in candidates:
        own = []
        for column in columns:
            if column.framework.name == candidate.framework:
                own.append(copy.copy(column))
                own[-1].variants = (candidate.variant,)
        yield [case for case in cases if case.operator == candidate.operator], own


def usable_memory() -> int:
    """Bytes that one case may take here: a share of what is free, within the limit of this process."""
    free = psutil.virtual_memory().available
    return int(min(free, read_limits().memory_bytes or free) * MEMORY_SHARE)


def _distinct(columns: Iterable[Column]) -> list[tuple[Column, list[str]]]:
    """Each column with its variants. One may be named twice; every cell is planned once."""
    seen: set[tuple[Environment, str]] = set()
    found = []
    for column in columns:
        new = [v for v in dict.fromkeys(column.variants) if (column.environment, v) not in seen]
        seen |= {(column.environment, variant) for variant in new}
        found.append((column, new))
    return found


def _fixed(column: Column) -> Verdict:
    """What no case of a column can change."""
    if column.fixed or OPERATOR in column.framework.levels:
        return column.fixed
    text = f"{column.framework.title} has no operator cases: its catalog entry names {_list(column)}"
    return State.UNSUPPORTED, Reason(code="level", text=text)


def _list(column: Column) -> str:
    return ", ".join(column.framework.levels) or "no level"


def _too_large(case: CatalogCase, limit: int) -> Verdict:
    needed = needed_bytes(case.case)
    if needed <= limit:
        return None
    return State.UNAVAILABLE, _memory(needed, limit)


@functools.lru_cache(maxsize=1024)
def _memory(needed: int, limit: int) -> Reason:
    text = f"needs {needed / 1e9:.1f} GB with its copies, limit {limit / 1e9:.1f} GB"
    return Reason(code="memory", text=text)
