"""What differs between two locks: which packages of two built environments are not the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from packaging.utils import canonicalize_name


@dataclasses.dataclass(frozen=True, slots=True)
class LockChange:
    """One distribution; "" on the side that lacks it. The name is as its own metadata writes it."""

    name: str
    base: str
    candidate: str

    def __str__(self) -> str:
        if not self.base:
            return f"{self.name} {self.candidate} added"
        if not self.candidate:
            return f"{self.name} {self.base} removed"
        return f"{self.name} {self.base} -> {self.candidate}"


def lock_difference(base: Sequence[str], candidate: Sequence[str]) -> tuple[LockChange, ...]:
    """The changes from one lock ("name==version" each) to the other, by name; empty for equal ones."""
    old, new = _versions(base), _versions(candidate)
    changes = []
    for name in sorted(old.keys() | new.keys()):
        shown, before = old.get(name, ("", ""))
        shown, after = new.get(name, (shown, ""))
        if before != after:
            changes.append(LockChange(shown, before, after))
    return tuple(changes)


def _versions(lock: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Normal name -> the name as written, and the version."""
    pairs = (line.partition("==") for line in lock)
    return {canonicalize_name(name): (name, version) for name, _, version in pairs}
