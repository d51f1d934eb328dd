"""Rows for tests of verdicts: made from log ratios, or from values as they come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from matrix.judge.rows import Row, Sides, Stage


def row(
    ratios: Sequence[float] | np.ndarray = (),
    workload: str = "w",
    *,
    confirm: Sequence[float] | np.ndarray | None = None,
    **changes: Any,
) -> Row:
    """A latency row whose candidate is exp(ratio) times a base of 10 ms in each block.

    With `confirm` the ratios are screening blocks, and these are confirming ones.
    """
    values = [float(x) for x in ratios]
    stages = {}
    if confirm is not None:
        values += [float(x) for x in confirm]
        screening = len(values) - len(confirm)
        stages = {str(i): Stage.SCREEN if i < screening else Stage.CONFIRM for i in range(len(values))}
    base = {str(i): 10.0 for i in range(len(values))}
    candidate = {str(i): 10.0 * math.exp(x) for i, x in enumerate(values)}
    facts: dict[str, Any] = {
        "workload": workload,
        "metric": "latency_ms",
        "unit": "ms",
        "better": "lower",
        "margin": 0.03,
        "clocks": {"wall": Sides(base=base, candidate=candidate)},
        "stages": stages,
    }
    return Row(**facts | changes)


def values_row(base: Mapping[str, Any], candidate: Mapping[str, Any], **changes: Any) -> Row:
    """A row of these values."""
    return row(clocks={"": Sides(base=base, candidate=candidate)}, **changes)


def noise(n: int, seed: int = 0, sd: float = 0.01) -> np.ndarray:
    """Log ratios of blocks in which nothing changed: mean exactly 0 and sample deviation exactly `sd`."""
    x = np.random.default_rng(seed).standard_normal(n)
    x -= x.mean()
    return x * sd / x.std(ddof=1)
