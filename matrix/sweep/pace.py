"""How long the rest will take, from how long things took so far."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Hashable, Iterable


@dataclasses.dataclass
class Pace:
    """Seconds per launch, by kind (its environment and purpose). A kind not seen yet takes the mean."""

    _seen: dict[Hashable, list[float]] = dataclasses.field(default_factory=dict)

    def note(self, kind: Hashable, seconds: float) -> None:
        """A launch of this kind took so long."""
        self._seen.setdefault(kind, []).append(seconds)

    def left(self, kinds: Iterable[Hashable]) -> float | None:
        """Seconds for launches of these kinds, one after another; None before any was seen."""
        if not self._seen:
            return None
        means = {kind: statistics.fmean(seconds) for kind, seconds in self._seen.items()}
        typical = statistics.fmean(means.values())
        return sum(means.get(kind, typical) for kind in kinds)
