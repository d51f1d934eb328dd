"""Stored runs to what is judged: rows of paired values, and all that needs no judge.

One run holds both sides: pairs that were alive together, or launches of one block. Two runs
show an effect, but nobody knows what the machine did in between; two machines show nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrix.catalog.types import Catalog
from matrix.compare import from_runs, from_samples
from matrix.compare.collected import Collected
from matrix.compare.findings import PARITY, STATE
from matrix.compare.native import Rules
from matrix.compare.sides import Duel
from matrix.errors import UsageError
from matrix.select import Selector


def collect(duels: Sequence[Duel], catalog: Catalog, rules: Rules, select: Selector | None) -> Collected:
    """Rows and findings of all pairs of environments. Raises UsageError when nothing is selected."""
    found = Collected()
    reader = from_runs.Reader()
    for duel in duels:
        prefix = f"{duel.name}: " if len(duels) > 1 else ""
        if duel.base.is_imported:
            from_samples.gather(duel, rules, select, found, prefix=prefix)
        else:
            from_runs.gather(duel, catalog, rules, select, found, prefix=prefix, reader=reader)
    if select is not None and not (found.rows or found.findings or found.base.cells or found.candidate.cells):
        raise UsageError(f"--select {select.expression!r} chooses no cell of either side")
    _must_judge_something(found, rules)
    return found


def _must_judge_something(found: Collected, rules: Rules) -> None:
    """A gate on metrics that nobody measured would be open for ever. Raises UsageError."""
    if found.rows or found.findings or not rules.metrics or {STATE, PARITY} & {*rules.metrics}:
        return
    bare = [name for name in rules.metrics if rules.margin(name) is None]
    if bare:
        raise UsageError(
            f"--metric {bare[0]}: it has no smallest change that matters; --margin {bare[0]}=0.05"
        )
    raise UsageError(f"--metric {', '.join(rules.metrics)}: neither side has a value of it")
