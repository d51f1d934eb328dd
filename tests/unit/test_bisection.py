"""Searching for the first bad version, with any guilty one and any that cannot be tested."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies

from matrix.judge.bisection import Answer, Found, Nothing, Range, Try, contradictions, next_step

GOOD, BAD, SKIP = Answer.GOOD, Answer.BAD, Answer.SKIP


def search(count: int, guilty: int, skips: frozenset[int] = frozenset()) -> tuple[object, list[int]]:
    """The end of a search over versions 0..count-1 of which all from `guilty` on are bad, and its tests."""
    versions = [str(number) for number in range(count)]
    answers: dict[str, Answer] = {}
    tested: list[int] = []
    while isinstance(step := next_step(versions, answers), Try):
        number = int(step.version)
        assert step.version not in answers, "tested twice"
        tested.append(number)
        answers[step.version] = SKIP if number in skips else BAD if number >= guilty else GOOD
    return step, tested


@strategies.composite
def searches(draw: strategies.DrawFn) -> tuple[int, int, frozenset[int]]:
    count = draw(strategies.integers(2, 60))
    guilty = draw(strategies.integers(1, count - 1))
    skips = draw(strategies.frozensets(strategies.integers(1, max(1, count - 2))))
    return count, guilty, skips - {count - 1}


@given(searches())
def test_the_guilty_version_is_found_or_is_among_as_few_suspects_as_the_skips_allow(
    case: tuple[int, int, frozenset[int]],
) -> None:
    count, guilty, skips = case
    end, _ = search(count, guilty, skips)
    last_good = max(number for number in range(guilty) if number not in skips)
    first_bad = min(number for number in range(guilty, count) if number not in skips)
    if first_bad == last_good + 1:
        assert end == Found(str(last_good), str(first_bad))
    else:
        assert end == Range(str(last_good), tuple(str(n) for n in range(last_good + 1, first_bad + 1)))


@given(strategies.integers(2, 500), strategies.data())
def test_without_skips_it_takes_one_test_of_the_end_and_a_halving(
    count: int, data: strategies.DataObject
) -> None:
    guilty = data.draw(strategies.integers(1, count - 1))
    end, tested = search(count, guilty)
    assert end == Found(str(guilty - 1), str(guilty))
    assert tested[0] == count - 1
    assert 0 not in tested
    assert len(tested) - 1 <= math.ceil(math.log2(count - 1)) if count > 2 else len(tested) == 1


@given(searches())
def test_a_search_that_was_stopped_goes_on_from_its_answers(case: tuple[int, int, frozenset[int]]) -> None:
    count, guilty, skips = case
    versions = [str(number) for number in range(count)]
    answers: dict[str, Answer] = {}
    while isinstance(step := next_step(versions, answers), Try):
        number = int(step.version)
        answers[step.version] = SKIP if number in skips else BAD if number >= guilty else GOOD
        reordered = dict(sorted(answers.items()))
        assert next_step(tuple(versions), reordered) == next_step(versions, answers)
    assert step == search(count, guilty, skips)[0]


@pytest.mark.parametrize("answer", [GOOD, SKIP])
def test_ends_that_do_not_differ_leave_nothing_to_find(answer: Answer) -> None:
    assert next_step(["1", "2", "3"], {"3": answer}) == Nothing(answer)


def test_the_first_test_says_how_many_may_follow() -> None:
    assert next_step(["1", "2"], {}) == Try("2", 0)
    assert next_step([str(n) for n in range(9)], {}) == Try("8", 3)
    assert next_step([str(n) for n in range(9)], {"8": BAD}) == Try("4", 3)


def test_a_cluster_of_versions_that_cannot_be_built_is_left_at_once() -> None:
    cluster = frozenset(range(30, 71))
    end, tested = search(100, 20, cluster)
    assert end == Found("19", "20")
    assert len(cluster & set(tested)) <= 2


def test_a_good_version_after_a_bad_one_is_a_contradiction() -> None:
    versions = ["1", "2", "3", "4"]
    assert contradictions(versions, {"4": BAD, "2": GOOD}) == ()
    assert contradictions(versions, {"4": BAD, "2": BAD, "3": GOOD}) == ("3",)
    assert contradictions(versions, {}) == ()
    assert next_step(versions, {"4": BAD, "2": BAD, "3": GOOD}) == Found("1", "2")


@pytest.mark.parametrize("versions", [[], ["1"], ["1", "2", "1"]])
def test_fewer_than_two_versions_or_the_same_twice_is_a_mistake(versions: list[str]) -> None:
    with pytest.raises(ValueError, match="at least two versions"):
        next_step(versions, {})
