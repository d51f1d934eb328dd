"""What is compared with what: environments of stored runs, found from what a user typed."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from matrix.errors import StorageError, UsageError
from matrix.imported import samples
from matrix.records import AA
from matrix.store.names import HEADER_FILE, find_run_and_environment
from matrix.store.runs import StoredRun
from matrix.strict_yaml.located import did_you_mean

#: environments that a message lists
_MOST_NAMED = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """One environment of one run, the arm in its name where it has one (NAME@aa); "" for none."""

    run: StoredRun
    environment: str

    @property
    def run_name(self) -> str:
        return self.run.header.name or self.run.id

    @property
    def label(self) -> str:
        return f"{self.run_name}:{self.environment}"

    @property
    def is_imported(self) -> bool:
        return samples.is_imported(self.run.folder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Duel:
    """A base and its candidate. `variants`: of an A/B run whose arms differ in the variant, else "", ""."""

    base: Side
    candidate: Side
    variants: tuple[str, str] = ("", "")

    @property
    def one_run(self) -> bool:
        return self.base.run.folder == self.candidate.run.folder

    @property
    def name(self) -> str:
        base, candidate = (
            f"{side.environment} [{variant}]" if variant else side.environment
            for side, variant in zip((self.base, self.candidate), self.variants, strict=True)
        )
        return " -> ".join(dict.fromkeys(name for name in (base, candidate) if name))


def environments(run: StoredRun) -> list[str]:
    """The environments of a run by name, arms apart, in plan order."""
    if samples.is_imported(run.folder):
        return list(samples.load(run.folder).names["environment"])
    return list(dict.fromkeys(cell.side for cell in run.cells()))


def duels(results: Path, base: str, candidate: str | None) -> tuple[Duel, ...]:
    """What `compare BASE CANDIDATE` means. Raises UsageError, StorageError.

    A run without an environment stands for all that it has: environments of the same name are
    compared, else those of the same framework and hardware. BASE alone is an A/B run.
    """
    mine = _typed(results, base)
    if candidate is None:
        return _of_ab_run(*mine)
    other = _typed(results, candidate)
    pairs = [(mine[1], other[1])] if mine[1] and other[1] else _matched(mine, other)
    found = tuple(
        Duel(base=Side(run=mine[0], environment=a), candidate=Side(run=other[0], environment=b))
        for a, b in pairs
    )
    for duel in found:
        if duel.one_run and duel.base.environment == duel.candidate.environment:
            raise UsageError(
                f"{duel.base.label} is compared with itself: name two environments; it has "
                f"{_several(environments(mine[0]))}"
            )
        if duel.base.is_imported != duel.candidate.is_imported:
            raise UsageError(
                f"{duel.base.label} and {duel.candidate.label}: one was measured here, the other imported; "
                "nothing says that they have a workload in common"
            )
    return found


def _typed(results: Path, text: str) -> tuple[StoredRun, str]:
    """A run and the environment that was named ("" for none). Raises UsageError."""
    folder, environment = find_run_and_environment(results, text)
    run = StoredRun(folder)
    if environment:
        known = environments(run)
        if environment not in known:
            hint = did_you_mean(environment, known)
            raise UsageError(f"{text}: the run has no such environment{hint}; it has {_several(known)}")
    return run, environment


def _of_ab_run(run: StoredRun, environment: str) -> tuple[Duel, ...]:
    """The baseline of an A/B run and each of its candidates, hardware by hardware."""
    comparison = run.header.comparison
    if comparison and environment:
        raise UsageError(
            f"{run.header.name or run.id}:{environment}: name a CANDIDATE too, or leave the environment out: "
            "the run's own base is compared with its candidates"
        )
    if not comparison:
        known = environments(run)
        pair = _without_arms(known)[:2]
        example = shlex.join(f"{run.header.name or run.id}:{name}" for name in pair)
        raise UsageError(
            f"{run.id} is no A/B run: say what to compare with, BASE and CANDIDATE; "
            f"it has {_several(known)}" + (f" (matrix compare {example})" if len(pair) > 1 else "")
        )
    try:
        candidates = comparison["candidates"]
        own, *others = comparison.get("variants") or [""] * (1 + len(candidates))
        return tuple(
            Duel(
                base=Side(run=run, environment=base),
                candidate=Side(run=run, environment=name),
                variants=(own, variant),
            )
            for names, variant in zip(candidates, others, strict=True)
            for base, name in zip(comparison["base"], names, strict=True)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{run.folder / HEADER_FILE} is damaged: comparison: {error}") from error


def _matched(mine: tuple[StoredRun, str], other: tuple[StoredRun, str]) -> list[tuple[str, str]]:
    """Which environments belong together where at least one side names none.

    One that has no counterpart is paired with "": its cells are told as gone, or as new.
    """
    left, right = ([name] if name else _without_arms(environments(run)) for run, name in (mine, other))
    if len(left) == len(right) == 1:
        return [(left[0], right[0])]
    found = [] if mine[0].folder == other[0].folder else [(name, name) for name in left if name in right]
    rest = [[n for n in names if n not in dict(found)] for names in (left, right)]
    if mine[0].folder != other[0].folder:
        found += _of_one_kind(mine[0], rest[0], other[0], rest[1])
    if not found:
        raise UsageError(
            f"which environments? BASE has {_several(left)}; CANDIDATE has {_several(right)}: "
            "write RUN:ENVIRONMENT"
        )
    taken = {name for _, name in found}
    gone = [(name, "") for name in left if name not in dict(found)]
    return [*found, *gone, *(("", name) for name in right if name not in taken)]


def _several(names: Sequence[str]) -> str:
    """A list that a reader can take in."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _without_arms(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.endswith(f"@{AA}")]


def _of_one_kind(
    base: StoredRun, left: Sequence[str], candidate: StoredRun, right: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Environments of one framework and hardware, where each run has just one of them."""
    kinds: list[dict[tuple[str, str], list[str]]] = []
    for run, names in ((base, left), (candidate, right)):
        found: dict[tuple[str, str], list[str]] = {}
        for name, kind in _kinds(run).items():
            if name in names:
                found.setdefault(kind, []).append(name)
        kinds.append(found)
    for kind, names in kinds[0].items():
        others = kinds[1].get(kind, [])
        if len(names) == len(others) == 1:
            yield names[0], others[0]


def _kinds(run: StoredRun) -> dict[str, tuple[str, str]]:
    if samples.is_imported(run.folder):
        return {}
    return {cell.side: (cell.environment.framework, cell.environment.hardware) for cell in run.cells()}
