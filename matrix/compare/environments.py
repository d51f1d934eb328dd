"""In what two environments differ beside the version that was asked for: the locks, the sizes, what spies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matrix.catalog.types import Metric
from matrix.environments.lock_difference import LockChange, lock_difference
from matrix.judge.rows import Row, Sides
from matrix.records import EnvironmentRecord, Record

IMAGE_SIZE = "image_bytes"
#: flags that one side alone must not carry without a word
_SPIES = ("preload",)


def lock_changes(base: EnvironmentRecord, candidate: EnvironmentRecord) -> tuple[LockChange, ...]:
    """Everything installed that differs, the interpreter first; nothing where one could not be built."""
    if not base.lock or not candidate.lock:
        return ()
    python: tuple[LockChange, ...] = ()
    if base.python != candidate.python:
        python = (LockChange("Python", base.python, candidate.python),)
    return (*python, *lock_difference(base.lock, candidate.lock))


def size_row(
    base: EnvironmentRecord, candidate: EnvironmentRecord, metric: Metric, *, margin: float, label: str
) -> Row | None:
    """Their sizes on disk; None where one is not known."""
    if base.size_bytes is None or candidate.size_bytes is None:
        return None
    differs = base.backend != candidate.backend
    return Row(
        workload=label,
        metric=metric.id,
        unit=metric.unit,
        better=metric.better,
        margin=margin,
        clocks={"": Sides(base={"0": base.size_bytes}, candidate={"0": candidate.size_bytes})},
        family=metric.id,
        layout="none",
        timing=False,
        fixed=True,
        not_comparable=f"backend differs: {base.backend}, {candidate.backend}" if differs else "",
    )


def spies(base: Sequence[Record], candidate: Sequence[Record]) -> list[str]:
    """Profilers and preloaded libraries that only one side had, or that differ, as warnings.

    They hook every call, and what is chatty pays more for it.
    """
    found = []
    for code in _SPIES:
        texts = [
            Counter(flag.text for record in side for flag in record.flags if flag.code == code)
            for side in (base, candidate)
        ]
        if set(texts[0]) != set(texts[1]):
            said = [
                f"{name}: {'; '.join(sorted(text)) or 'none'}"
                for name, text in zip(("base", "candidate"), texts, strict=True)
            ]
            found.append(f"a profiler or preloaded library is not the same on both sides ({', '.join(said)})")
    return found
