"""What a faster operator would bring a whole model: Amdahl's law over the operator's share of its time.

G. M. Amdahl, "Validity of the single processor approach to achieving large scale computing
capabilities", AFIPS 1967: with a share s of the time made k times faster, the whole is
1 / (1 - s + s / k) times faster, and 1 / (1 - s) at most. Both are told as such: it is a forecast.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """The part of a model's time that an operator takes, 0 to 1. `derived`: computed, not profiled."""

    model: str
    share: float
    source: str  # "given", "25 uses, 1.2 of 41 ms"
    derived: bool = False
    flags: tuple[str, ...] = ()  # codes of what speaks against the times that it is derived from

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"{self.model}: a share is a number from 0 to 1, not {self.share:g}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoShare:
    """A model of which no share is known, and why."""

    model: str
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gain:
    """How many times as fast the model would be, and could be at most."""

    share: Share
    speedup: float  # of the operator
    gain: float
    most: float | None  # None: the operator is all there is


def gain_of(share: Share, speedup: float) -> Gain:
    """Amdahl's law. Raises ValueError for a speedup that is none."""
    if not (math.isfinite(speedup) and speedup > 0):
        raise ValueError(f"a speedup is a positive number, not {speedup:g}")
    return Gain(
        share=share,
        speedup=speedup,
        gain=1 / (1 - share.share + share.share / speedup),
        most=1 / (1 - share.share) if share.share < 1 else None,
    )


def derived_share(
    model: str, uses: Mapping[str, int], latency_ms: Mapping[str, float], model_ms: float
) -> Share:
    """Without a profile: how often each case occurs in the model, times what it takes alone.

    `uses`: case -> how often; `latency_ms`: what is known of these cases. Raises ValueError where a case
    was not timed, or where the operators alone take longer than the model: a share that is none.
    """
    missing = sorted(set(uses) - set(latency_ms))
    if missing:
        raise ValueError(f"{model}: {missing[0]} has no latency")
    if not (math.isfinite(model_ms) and model_ms > 0):
        raise ValueError(f"{model}: its own latency is not known")
    spent = sum(count * latency_ms[case] for case, count in uses.items())
    if spent > model_ms:
        text = (
            f"alone these operators take {spent:.3g} ms, the whole model {model_ms:.3g} ms: no share follows"
        )
        raise ValueError(f"{model}: {text}")
    source = f"{sum(uses.values())} of them alone take {spent:.3g} ms, the model {model_ms:.3g} ms"
    return Share(model=model, share=spent / model_ms, source=source, derived=True)
