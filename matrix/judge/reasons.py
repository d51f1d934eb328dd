"""The sentences of verdicts: what was seen, what matters, what would settle it."""

from __future__ import annotations

import math


def percent(log_ratio: float) -> str:
    """A logarithm of a ratio as "+4.2 %"; a large one as a factor, "x12.5"."""
    if (change := _expm1(log_ratio)) >= 10:
        return f"x{change + 1:.3g}"
    return f"{round(100 * _expm1(log_ratio), 1) + 0.0:+.1f} %"  # + 0.0: no "-0.0"


def size(log_ratio: float) -> str:
    """A size without direction, "4.2 %"."""
    share = 100 * _expm1(abs(log_ratio))
    return f"{share:,.0f} %" if 1e3 <= share < 1e7 else f"{share:.3g} %"


#: nobody measures more
_MOST_BLOCKS = 100_000


def more(blocks: int, seconds: float | None) -> str:
    """What would probably settle it."""
    if blocks > _MOST_BLOCKS:
        return f"more than {_MOST_BLOCKS:,} more blocks would be needed: only a wider margin would settle it"
    many = f"{blocks:,} more block" + ("" if blocks == 1 else "s")
    return f"about {many}" + (f" ({duration(seconds)})" if seconds is not None else "") + " would settle it"


def duration(seconds: float) -> str:
    """Seconds for a reader: "40 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def within(delta: float, margin: float) -> str:
    """A real change that is too small to matter."""
    return f"{percent(delta)}, within the margin of {size(margin)}"


def imprecise(mde: float, margin: float) -> str:
    return f"not precise enough: only a change of {size(mde)} would have been seen, {size(margin)} matters"


def undecided(low: float, high: float, margin: float) -> str:
    span = f"between {percent(low)} and {percent(high)}"
    return f"{span}: neither a change nor within the margin of {size(margin)}"


def early(delta: float, blocks: int) -> str:
    """The interval leaves nothing out, but a look at so few blocks has little of the level."""
    return f"looks like {percent(delta)}, which {blocks} blocks are too few to make certain"


def unconfirmed(screened: float, confirmed: float | None, blocks: int) -> str:
    """A suspect whose confirming blocks say otherwise, or are not there."""
    if confirmed is None:
        had = {0: "no confirming blocks", 1: "only 1 confirming block"}.get(blocks)
        had = had or f"only {blocks} confirming blocks"
        return f"suspect of {percent(screened)}, not confirmed: {had}"
    return f"suspect of {percent(screened)}, not confirmed: {percent(confirmed)} in {blocks} fresh blocks"


def by_chance(delta: float, rows: int, adjusted: float) -> str:
    """Looks like a change, but one of so many rows would by chance."""
    return (
        f"suspect of {percent(delta)}, not confirmed: one of {rows:,} rows looks like this by chance "
        f"(p = {adjusted:.2g} over all rows)"
    )


def too_few(blocks: int, least: int) -> str:
    return f"{blocks} common block{'' if blocks == 1 else 's'}, {least} are needed at least"


def _expm1(value: float) -> float:
    return math.expm1(min(value, 700.0))


SEPARATE = (
    "not interleaved: the sides were measured in separate runs, so whatever changed between them counts too"
)
