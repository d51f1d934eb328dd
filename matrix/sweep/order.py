"""In what order launches are made: random, from the run's seed alone.

Within a block the rows (workloads) are shuffled, and the cells within each row, so
that drift of the machine hits all alike and cells that are compared stay close in
time. The order covers all cells that can run, done or not: a resumed run goes on in
the order of the run that was interrupted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from matrix.records import Cell


def block_order(cells: Sequence[Cell], seed: int, block: int) -> list[Cell]:
    """The cells in the order of one block. The same for the same arguments, on every machine."""
    chance = random.Random(f"{seed}:{block}")  # noqa: S311  (order, not secrecy)
    rows: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        work = cell.workload
        key = (work.level, work.subject, work.batch, work.sequence, work.precision, work.threads)
        rows.setdefault(key, []).append(cell)
    shuffled = list(rows.values())
    chance.shuffle(shuffled)
    for row in shuffled:
        chance.shuffle(row)
    return [cell for row in shuffled for cell in row]
