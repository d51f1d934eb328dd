"""The whole search with an answering machine in place of measurements: guilt, resuming, the views."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies

from matrix.bisect import state as states
from matrix.bisect.guilt import Guilty
from matrix.bisect.search import Conclusion, Search
from matrix.bisect.state import State, Target, versions_of
from matrix.bisect.state import Tested as Answered
from matrix.environments import changes as changed
from matrix.environments.releases import Candidate, of_versions
from matrix.errors import StorageError, UsageError
from matrix.judge.bisection import Answer, Found, Nothing, Range
from matrix.report import bisection as view

GOOD, BAD, SKIP = Answer.GOOD, Answer.BAD, Answer.SKIP
Packages = Mapping[str, str]


def new(labels: Sequence[str]) -> State:
    return State(
        id="20261130-120000-bisect_toy-0001",
        created="2026-11-30T12:00:00Z",
        framework="toy",
        versions=tuple(versions_of(of_versions(labels))),
        config="quick",
    )


class World:
    """Versions of a framework, the packages that each brings, and who makes things slow."""

    def __init__(
        self,
        packages: Sequence[Packages],
        *,
        slow: Callable[[int, Packages], bool],
        broken: Callable[[int, Packages], bool] = lambda *_: False,
    ) -> None:
        self.packages, self.slow, self.broken = packages, slow, broken
        self.labels = [str(number) for number in range(len(packages))]
        self.asked: list[str] = []

    def test(self, state: State, candidate: Candidate) -> Answered:
        self.asked.append(candidate.label)
        number = int(candidate.version)
        held = {**self.packages[number], **changed.of(candidate.changes).forced}
        answer = SKIP if self.broken(number, held) else BAD if self.slow(number, held) else GOOD
        return Answered(
            answer=answer,
            verdict=f"said {answer.value}",
            run=f"run-{len(self.asked)}",
            lock=_lock(number, held),
            good_lock=_lock(0, self.packages[0]),
            target=Target(workload="w", metric="latency_ms") if answer is BAD else None,
        )

    def search(self, state: State | None = None, keep: Callable[[State], None] = lambda _: None) -> Search:
        return Search(state or new(self.labels), self.test, own=["toy"], keep=keep)


def _lock(number: int, packages: Packages) -> tuple[str, ...]:
    return tuple(sorted([f"toy=={number}", *(f"{name}=={version}" for name, version in packages.items())]))


def concluded(world: World) -> tuple[Conclusion, State]:
    search = world.search()
    return search.run(), search.state


# --- guilt --------------------------------------------------------------------------------


def test_where_nothing_else_changed_the_framework_is_guilty_without_another_test() -> None:
    world = World([{"numpy": "2"}] * 6, slow=lambda number, _: number >= 3)
    end, _ = concluded(world)
    assert end.end == Found("2", "3")
    assert end.judgement is not None
    assert (end.judgement.guilty, end.judgement.packages) == (Guilty.FRAMEWORK, ())
    assert not any("with" in label for label in world.asked)


def test_a_guilty_framework_is_told_from_a_package_that_merely_changed_with_it() -> None:
    world = World([{"numpy": "1" if n < 3 else "2"} for n in range(6)], slow=lambda number, _: number >= 3)
    end, _ = concluded(world)
    assert end.judgement is not None
    assert end.judgement.guilty is Guilty.FRAMEWORK
    assert [str(change) for change in end.judgement.others] == ["numpy 1 -> 2"]
    assert world.asked[-2:] == ["2 with numpy 2 of 3", "3 with numpy 1 of 2"]


def test_a_guilty_dependency_is_named_among_several_that_changed() -> None:
    old, new_ = {"a": "1", "b": "1", "c": "1", "d": "1"}, {"a": "2", "b": "2", "c": "2", "d": "2"}
    world = World([old] * 3 + [new_] * 3, slow=lambda _, held: held["c"] == "2")
    end, state = concluded(world)
    assert end.judgement is not None
    assert end.judgement.guilty is Guilty.DEPENDENCY
    assert [str(change) for change in end.judgement.packages] == ["c 1 -> 2"]
    shown = view.text(state, end)
    assert "Guilty: a dependency, not the framework: c 1 -> 2" in shown
    assert json.loads(view.as_json(state, end))["guilty_packages"] == [
        {"name": "c", "base": "1", "candidate": "2"}
    ]


def test_an_added_package_is_crossed_into_the_old_version_and_stays_in_the_new_one() -> None:
    world = World([{}] * 2 + [{"hook": "1"}] * 2, slow=lambda _, held: "hook" in held)
    end, _ = concluded(world)
    assert end.judgement is not None
    assert world.asked[-2:] == ["1 with hook 1 of 2", "2 with the packages of 1"]
    assert end.judgement.guilty is Guilty.BOTH  # nobody can take it away from the new version


@pytest.mark.parametrize(
    ("slow", "broken", "guilty"),
    [
        (lambda n, h: n >= 2 or h["a"] == "2", lambda *_: False, Guilty.BOTH),
        (lambda n, h: n >= 2 and h["a"] == "2", lambda *_: False, Guilty.TOGETHER),
        (lambda n, h: n >= 2, lambda n, h: (n >= 2) != (h["a"] == "2"), Guilty.UNKNOWN),
    ],
)
def test_crossings_that_blame_both_neither_or_cannot_be_tested(
    slow: Callable[[int, Packages], bool], broken: Callable[[int, Packages], bool], guilty: Guilty
) -> None:
    world = World([{"a": "1"}] * 2 + [{"a": "2"}] * 2, slow=slow, broken=broken)
    end, state = concluded(world)
    assert end.end == Found("1", "2")
    assert end.judgement is not None
    assert end.judgement.guilty is guilty
    assert [str(change) for change in end.judgement.packages] == ["a 1 -> 2"]
    assert "Guilty: " in view.text(state, end)


@given(strategies.data())
def test_any_guilty_package_at_any_place_is_found(data: strategies.DataObject) -> None:
    count = data.draw(strategies.integers(2, 12))
    place = data.draw(strategies.integers(1, count - 1))
    names = data.draw(strategies.lists(strategies.sampled_from("abcdefgh"), min_size=1, unique=True))
    guilty = data.draw(strategies.sampled_from(names))
    world = World(
        [dict.fromkeys(names, "1" if number < place else "2") for number in range(count)],
        slow=lambda _, held: held[guilty] == "2",
    )
    end, _ = concluded(world)
    assert end.end == Found(str(place - 1), str(place))
    assert end.judgement is not None
    assert end.judgement.guilty is Guilty.DEPENDENCY
    assert [change.name for change in end.judgement.packages] == [guilty]


# --- ends ---------------------------------------------------------------------------------


def test_ends_that_do_not_differ_end_the_search_with_the_verdict() -> None:
    world = World([{}] * 8, slow=lambda *_: False)
    end, state = concluded(world)
    assert end.end == Nothing(GOOD)
    assert world.asked == ["7"]
    assert "Nothing to find: 7 is no worse than 0: said good" in view.text(state, end)


def test_ends_that_cannot_be_compared_are_told_apart_from_ends_that_do_not_differ() -> None:
    end, state = concluded(World([{}] * 3, slow=lambda *_: True, broken=lambda *_: True))
    assert end.end == Nothing(SKIP)
    assert "did not come to a verdict: said skip" in view.text(state, end)
    assert json.loads(view.as_json(state, end))["outcome"] == "undecided"


def test_skipped_versions_leave_a_range_and_nobody_is_blamed() -> None:
    world = World([{}] * 6, slow=lambda n, _: n >= 2, broken=lambda n, _: n in (2, 3))
    end, state = concluded(world)
    assert end.end == Range("1", ("2", "3", "4"))
    assert end.judgement is None
    shown = view.text(state, end)
    assert "The first bad version is one of 2, 3, 4; the last good one is 1." in shown
    assert json.loads(view.as_json(state, end))["suspects"] == ["2", "3", "4"]


def test_the_target_of_the_first_test_is_followed_and_what_else_is_worse_is_kept() -> None:
    world = World([{}] * 4, slow=lambda n, _: n >= 2)
    _, state = concluded(world)
    assert state.target == Target(workload="w", metric="latency_ms")


# --- stopping and going on ----------------------------------------------------------------


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", range(6))
def test_a_search_that_is_stopped_anywhere_goes_on_from_its_file(tmp_path: Path, after: int) -> None:
    packages = [{"a": "1"}] * 4 + [{"a": "2"}] * 4
    whole = World(packages, slow=lambda _, held: held["a"] == "2")
    expected, _ = concluded(whole)

    stopped = World(packages, slow=lambda _, held: held["a"] == "2")
    first = stopped.search(keep=lambda state: states.save(tmp_path, state))
    states.save(tmp_path, first.state)
    answered = stopped.test

    def test(state: State, candidate: Candidate) -> Answered:
        if len(stopped.asked) == after:
            raise Stopped
        return answered(state, candidate)

    stopped.test = test  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        Search(first.state, test, own=["toy"], keep=lambda state: states.save(tmp_path, state)).run()
    again = World(packages, slow=lambda _, held: held["a"] == "2")
    resumed = again.search(states.load(tmp_path, "latest"))
    assert resumed.run() == expected
    assert stopped.asked + again.asked == whole.asked


def test_a_run_that_was_begun_is_remembered_until_its_answer_is_there(tmp_path: Path) -> None:
    state = new(["1", "2"]).with_run("2", "20261130-run")
    states.save(tmp_path, state)
    assert states.load(tmp_path, state.id[:12]).running == {"2": "20261130-run"}
    assert state.with_test("2", Answered(answer=GOOD, verdict="well")).running == {}


def test_a_version_whose_budget_was_spent_is_gone_on_with_and_others_are_not() -> None:
    state = new(["1", "2", "3"])
    state = state.with_test("3", Answered(answer=BAD, verdict="worse", run="r3"))
    state = state.with_test("2", Answered(answer=SKIP, verdict="inconclusive", run="r2", unfinished=True))
    again = state.reopened()
    assert set(again.tested) == {"3"}
    assert again.running == {"2": "r2"}


def test_a_bisection_that_cannot_be_found_or_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none is called 'latest'; in .* there are: none"):
        states.load(tmp_path, "latest")
    for name in ("20261130-1", "20261130-2"):
        states.save(tmp_path, new(["1", "2"]).model_copy(update={"id": name}))
    with pytest.raises(UsageError, match="'20261130' names 2"):
        states.load(tmp_path, "20261130")
    states.path_of(tmp_path, "20261130-2").write_text("{")
    with pytest.raises(StorageError, match=r"20261130-2\.json cannot be read"):
        states.load(tmp_path, "latest")
