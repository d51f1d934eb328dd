"""Who is guilty when a bad version brought other packages too: the framework, or one of them?

The last good version is tested with the other packages of the first bad one, and the reverse.
Each crossing puts in exactly the packages that differ, whatever they declare to need.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable, Sequence

from packaging.utils import canonicalize_name

from matrix.environments.changes import FORCED
from matrix.environments.lock_difference import LockChange, lock_difference
from matrix.environments.releases import Candidate
from matrix.judge.bisection import Answer, Found


class Guilty(enum.StrEnum):
    """What changed the measured thing, as far as crossing tells."""

    FRAMEWORK = "framework"
    DEPENDENCY = "dependency"
    BOTH = "both"  # each of them alone is enough
    TOGETHER = "together"  # neither alone
    UNKNOWN = "unknown"  # a crossing could not be tested


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """Who is guilty, the packages that are suspected, and what was asked to find out."""

    guilty: Guilty
    packages: tuple[LockChange, ...] = ()  # the guilty ones, or those that cannot be told apart
    others: tuple[LockChange, ...] = ()  # every other package that differs between the two locks
    asked: tuple[str, ...] = ()  # labels of the crossed environments, in order


Ask = Callable[[Candidate], Answer]


def judge(
    found: Found,
    candidates: Sequence[Candidate],
    locks: tuple[Sequence[str], Sequence[str]],
    own: Collection[str],
    ask: Ask,
) -> Judgement:
    """Tell framework and dependencies apart. `own`: distributions of the framework itself.

    `locks` are those of the last good and the first bad version. `ask` tests one environment.
    """
    good, bad = (
        next(c for c in candidates if c.label == name) for name in (found.last_good, found.first_bad)
    )
    names = {canonicalize_name(name) for name in own}
    others = tuple(c for c in lock_difference(*locks) if canonicalize_name(c.name) not in names)
    if not others:
        return Judgement(guilty=Guilty.FRAMEWORK)
    asked: list[str] = []

    def answer(candidate: Candidate) -> Answer:
        asked.append(candidate.label)
        return ask(candidate)

    packages = answer(_crossed(good, bad.label, others, newer=True))
    framework = answer(_crossed(bad, good.label, others, newer=False))
    guilty = _guilty(packages, framework)
    suspects = others
    if guilty is Guilty.DEPENDENCY:
        suspects = _narrowed(good, bad.label, others, answer)
    elif guilty is Guilty.FRAMEWORK:
        suspects = ()
    return Judgement(guilty=guilty, packages=suspects, others=others, asked=tuple(asked))


def _guilty(packages: Answer, framework: Answer) -> Guilty:
    """From the answers to "the new packages alone" and "the new framework alone"."""
    if Answer.SKIP in (packages, framework):
        return Guilty.UNKNOWN
    if packages is Answer.BAD:
        return Guilty.BOTH if framework is Answer.BAD else Guilty.DEPENDENCY
    return Guilty.FRAMEWORK if framework is Answer.BAD else Guilty.TOGETHER


def _narrowed(
    good: Candidate, bad: str, suspects: tuple[LockChange, ...], answer: Ask
) -> tuple[LockChange, ...]:
    """The one package that is enough by itself, by halving; where no half is, all that are left."""
    while len(suspects) > 1:
        first, second = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
        for half in (first, second):
            if answer(_crossed(good, bad, half, newer=True)) is Answer.BAD:
                suspects = half
                break
        else:
            return suspects
    return suspects


def _crossed(version: Candidate, other: str, changes: Iterable[LockChange], *, newer: bool) -> Candidate:
    """`version` with these packages of another one. One that the other lacks stays as it is."""
    wanted = {}
    for change in changes:
        taken = change.candidate if newer else change.base
        if taken:
            wanted[canonicalize_name(change.name)] = taken
    texts = [f"{name}={text}{FORCED}" for name, text in wanted.items()]
    kept = [text for text in version.changes if text.partition("=")[0] not in wanted]
    packages = ", ".join(f"{name} {text}" for name, text in sorted(wanted.items())) or "the packages"
    return Candidate(
        label=f"{version.label} with {packages} of {other}",
        version=version.version,
        changes=tuple(sorted([*kept, *texts])),
    )
