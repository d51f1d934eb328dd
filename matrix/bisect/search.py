"""The search: ask for one test after the other until the answer is known, keeping each answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from matrix.bisect import guilt
from matrix.bisect.guilt import Judgement
from matrix.bisect.state import State, Tested
from matrix.environments.lock_difference import LockChange, lock_difference
from matrix.environments.releases import Candidate
from matrix.judge.bisection import Answer, Found, Nothing, Range, Try, next_step

Test = Callable[[State, Candidate], Tested]
"""Compares the good version with another one; may raise, then nothing is kept of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conclusion:
    """How the search ended. `judgement` only where one first bad version was found."""

    end: Found | Range | Nothing
    changes: tuple[LockChange, ...] = ()  # from the last good to the first known bad one, all packages
    judgement: Judgement | None = None


class Search:
    """One bisection. `keep` is called with the state after every answer, before the next test."""

    def __init__(
        self,
        state: State,
        test: Test,
        *,
        own: Collection[str],
        keep: Callable[[State], None],
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.state = state
        self._test, self._own, self._keep, self._say = test, own, keep, say
        self._candidates = [version.candidate for version in state.versions]

    def run(self) -> Conclusion:
        """To the end. Raises what a test raises; the state then holds all answers until there."""
        labels = [candidate.label for candidate in self._candidates]
        while isinstance(step := next_step(labels, self.state.answers()), Try):
            left = f", about {step.left} more after it" if step.left else ""
            self._say(f"testing {step.version} against {labels[0]}{left}")
            self._ask(self._candidates[labels.index(step.version)])
        if isinstance(step, Nothing):
            return Conclusion(end=step)
        bad = step.first_bad if isinstance(step, Found) else step.suspects[-1]
        locks = self.lock_of(step.last_good), self.lock_of(bad)
        changes = lock_difference(*locks)
        if isinstance(step, Range) or not all(locks):
            return Conclusion(end=step, changes=changes)
        judgement = guilt.judge(step, self._candidates, locks, self._own, self._crossing)
        return Conclusion(end=step, changes=changes, judgement=judgement)

    def lock_of(self, label: str) -> tuple[str, ...]:
        """What the environment of a version really held; empty where that is not known."""
        if label == self.state.versions[0].label:
            locks = [tested.good_lock for tested in self.state.tested.values() if tested.good_lock]
            return locks[0] if locks else ()
        tested = self.state.tested.get(label)
        return tested.lock if tested else ()

    def _crossing(self, candidate: Candidate) -> Answer:
        if candidate.label not in self.state.tested:
            self._say(f"testing {candidate.label}")
        return self._ask(candidate).answer

    def _ask(self, candidate: Candidate) -> Tested:
        known = self.state.tested.get(candidate.label)
        if known is not None:
            return known
        tested = self._test(self.state, candidate)
        self.state = self.state.with_test(candidate.label, tested)
        self._keep(self.state)
        self._say(f"{candidate.label} is {tested.answer.value}: {tested.verdict}")
        return tested
