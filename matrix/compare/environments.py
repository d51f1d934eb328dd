"""In what two environments differ beside the version that was asked for: the locks, the sizes, what spies."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

from matrix.catalog.types import Metric
from matrix.judge.rows import Row, Sides
from matrix.records import EnvironmentRecord, Record

IMAGE_SIZE = "image_bytes"
#: flags that one side alone must not carry without a word
_SPIES = ("preload",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One distribution (or the interpreter) that is another one in the candidate; "" where it is absent."""

    name: str
    base: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.name} {self.base or 'absent'} -> {self.candidate or 'absent'}"


def lock_changes(base: EnvironmentRecord, candidate: EnvironmentRecord) -> tuple[Change, ...]:
    """Everything installed that differs, by name; Python first."""
    mine, other = _installed(base), _installed(candidate)
    names = sorted(set(mine) | set(other), key=lambda name: (name != "python", name))
    return tuple(
        Change(name=name, base=mine.get(name, ""), candidate=other.get(name, ""))
        for name in names
        if mine.get(name) != other.get(name)
    )


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


def _installed(environment: EnvironmentRecord) -> dict[str, str]:
    found = {"python": environment.python} if environment.python else {}
    for line in environment.lock:
        name, mark, version = line.partition("==")
        if not mark:
            name, _, version = line.partition(" @ ")
        found[re.sub(r"[-_.]+", "-", name).strip().lower()] = version.strip() or line
    return found
