"""What the launches of a cell, taken together, say against its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from matrix.consolidate.reduce import Timed
from matrix.records import LaunchRecord, ReasonRecord

#: medians of launches that differ by more than this share are `noisy`
NOISY_SHARE = 0.10
#: a gap between two groups of launches, in quartile distances within a launch, that makes them two modes
GAP_IN_SPREADS = 4.0


def merge(groups: Iterable[Iterable[ReasonRecord]]) -> tuple[ReasonRecord, ...]:
    """Each flag once, by code, the first text kept; the order is that of first sight."""
    found: dict[str, ReasonRecord] = {}
    for flags in groups:
        for flag in flags:
            found.setdefault(flag.code, flag)
    return tuple(found.values())


def launch_flags(launches: Sequence[LaunchRecord]) -> tuple[ReasonRecord, ...]:
    """The launches' own flags; one that only some of them carry says how many."""
    measured = [launch for launch in launches if launch.purpose == "measure"]
    flags = []
    for flag in merge(launch.flags for launch in launches):
        carriers = sum(any(f.code == flag.code for f in launch.flags) for launch in measured)
        some = 0 < carriers < len(measured)
        share = f" (in {carriers} of {len(measured)} launches)" if some else ""
        flags.append(ReasonRecord(code=flag.code, text=flag.text + share))
    return tuple(flags)


def spread_flags(latencies: Sequence[float], samples: Sequence[Timed]) -> list[ReasonRecord]:
    """`bimodal` or `noisy`, from the launches' medians in milliseconds."""
    if len(latencies) < 2:
        return []
    ordered = sorted(latencies)
    low, high, middle = ordered[0], ordered[-1], float(np.median(ordered))
    if middle <= 0 or (high - low) / middle <= NOISY_SHARE:
        return []
    modes = _modes(ordered, samples) if len(samples) == len(latencies) else None
    if modes is not None:
        below, above = modes
        text = (
            f"bimodal between processes: {len(below)} of {len(ordered)} launches near "
            f"{np.mean(below):.4g} ms, {len(above)} near {np.mean(above):.4g} ms, each steady within"
        )
        return [ReasonRecord(code="bimodal", text=text)]
    text = f"launches differ by {(high - low) / middle:.0%} ({low:.4g} to {high:.4g} ms)"
    return [ReasonRecord(code="noisy", text=text)]


def differing(launches: Sequence[LaunchRecord], names: Sequence[str]) -> list[ReasonRecord]:
    """A flag where the framework used something else in one launch than in another."""
    found = []
    for name in names:
        used = {str(launch.effective[name]) for launch in launches if name in launch.effective}
        if len(used) > 1:
            text = f"{name} changed between launches: {', '.join(sorted(used))}"
            found.append(ReasonRecord(code=f"{name}_changed", text=text))
    return found


def _modes(
    ordered: Sequence[float], samples: Sequence[Timed]
) -> tuple[Sequence[float], Sequence[float]] | None:
    """Two groups with a gap between them that no launch shows within itself; None when there are none."""
    if len(ordered) < 3:
        return None  # two launches that differ are two launches that differ
    gaps = np.diff(ordered)
    split = int(np.argmax(gaps)) + 1
    below, above = ordered[:split], ordered[split:]
    within = max(float(np.median([s.spread_ms for s in samples])), below[-1] - below[0], above[-1] - above[0])
    return (below, above) if float(gaps[split - 1]) > GAP_IN_SPREADS * within else None
