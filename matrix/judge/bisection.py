"""Which version is the first bad one: what to test next, and when the search is over.

Pure: versions in order, what is known of some of them, and the next step. Nothing is kept
between calls, so a search that was stopped goes on from its stored answers.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence


class Answer(enum.StrEnum):
    """What one test said of a version, compared with the good one."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"  # it could not be built, or the comparison did not decide


@dataclasses.dataclass(frozen=True, slots=True)
class Try:
    """This version is to be tested; `left`: about so many tests will follow it."""

    version: str
    left: int


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """`first_bad` is bad, and `last_good`, just before it, is not."""

    last_good: str
    first_bad: str


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """The first bad one is among `suspects` (in order, the last of them is bad); the others were skipped."""

    last_good: str
    suspects: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Nothing:
    """There is nothing to find: the bad end is as good as the good one, or nobody can tell (SKIP)."""

    bad_end: Answer


Step = Try | Found | Range | Nothing


def next_step(versions: Sequence[str], answers: Mapping[str, Answer]) -> Step:
    """What to do next. `versions`: in order, each once, the good end first and the bad end last.

    The bad end is tested first: without a difference between the ends there is nothing to find.
    The good end is what all are compared with, so it is good by definition. Raises ValueError for
    fewer than two versions or one that is there twice.
    """
    if len(versions) < 2 or len(set(versions)) != len(versions):
        raise ValueError("at least two versions are needed, each once")
    known = answers.get(versions[-1])
    if known is None:
        return Try(versions[-1], _tests(len(versions) - 2))
    if known is not Answer.BAD:
        return Nothing(known)
    low, high = bounds(versions, answers)
    between = range(low + 1, high)
    untested = [at for at in between if versions[at] not in answers]
    if untested:
        skipped = len(between) - len(untested)
        wanted = low + (high - low) * _place(skipped)
        chosen = min(untested, key=lambda at: (abs(at - wanted), at))
        return Try(versions[chosen], _tests(len(untested) - 1))
    if high == low + 1:
        return Found(versions[low], versions[high])
    return Range(versions[low], tuple(versions[low + 1 : high + 1]))


def bounds(versions: Sequence[str], answers: Mapping[str, Answer]) -> tuple[int, int]:
    """Where the last good version before the first known bad one is, and that bad one, as positions."""
    high = min((at for at, v in enumerate(versions) if at and answers.get(v) is Answer.BAD))
    low = max((at for at in range(high) if answers.get(versions[at]) is Answer.GOOD), default=0)
    return low, high


def contradictions(versions: Sequence[str], answers: Mapping[str, Answer]) -> tuple[str, ...]:
    """Good versions that come after a bad one: then there is no one first bad version.

    A search asks nothing that could show one; answers from elsewhere may.
    """
    bad = [at for at, v in enumerate(versions) if at and answers.get(v) is Answer.BAD]
    if not bad:
        return ()
    return tuple(v for v in versions[min(bad) + 1 :] if answers.get(v) is Answer.GOOD)


def _tests(untested: int) -> int:
    """How many tests halving takes for so many untested versions."""
    return untested.bit_length()


def _place(skipped: int) -> float:
    """Where in the open interval to look: the middle, and after each skip somewhere else.

    Versions that cannot be built come in clusters, so that the neighbour of a skipped one is a poor
    choice: 1/2, 1/4, 3/4, 1/8, 5/8, ... (van der Corput's sequence) leaves a cluster at once.
    """
    place, share, number = 0.0, 0.5, skipped + 1
    while number:
        place += share * (number & 1)
        number >>= 1
        share /= 2
    return place
