"""Taking turns: order by coin, the same slices on both sides, and an end when a side has ended."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.sweep.pair import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    Ended,
    Frozen,
    Half,
    rounds_for,
    run_pair,
    slice_samples,
)
from matrix_adapters.protocol import Result, State, Task, TaskKind

FROZEN = Frozen(warmup_calls=5, calls=1, samples=7, rounds=6)


class FakeLive:
    """A half that takes a second a sample, and ends after so many slices."""

    def __init__(self, name: str, log: list[tuple[str, str]], *, ready: bool = True, ends_after: int = 1000):
        self.name, self.log, self.ready, self.left = name, log, ready, ends_after

    def wait_ready(self) -> bool:
        self.log.append((self.name, "ready"))
        return self.ready

    def run(self, samples: int) -> float | None:
        self.left -= 1
        self.log.append((self.name, f"run {samples}"))
        return None if self.left < 0 else 0.02 * samples

    def finish(self) -> Result:
        self.log.append((self.name, "quit"))
        return Result(state=State.OK if self.ready and self.left >= 0 else State.FAILED)


def pair(
    frozen: Frozen | None = FROZEN, seed: int = 0, **of_candidate: Any
) -> tuple[Ended, list[tuple[str, str]]]:
    log: list[tuple[str, str]] = []

    @contextlib.contextmanager
    def open_live(built: Any, task: Task, folder: Path, **_: Any) -> Iterator[FakeLive]:
        log.append((built, "start"))
        yield FakeLive(built, log, **(of_candidate if built == "B" else {}))
        log.append((built, "gone"))

    halves = [
        Half(
            built=name,  # type: ignore[arg-type]
            task=Task(kind=TaskKind.SLICES, framework="t", adapter="t"),
            folder=Path(),
        )
        for name in "AB"
    ]
    ended = run_pair(
        *halves,
        frozen,
        chance=random.Random(seed),
        open_live=open_live,  # type: ignore[arg-type]
        timeout_s=1,
        stall_s=1,
        cancel=None,
    )
    return ended, log


def test_both_sides_are_timed_equally_in_every_round_and_the_order_is_random() -> None:
    orders, firsts = set(), set()
    for seed in range(20):
        ended, log = pair(seed=seed)
        turns = [name for name, what in log if what == "run 7"]
        rounds = ["".join(turns[i : i + 4]) for i in range(0, len(turns), 4)]
        assert len(rounds) == FROZEN.rounds
        assert set(rounds) <= {"ABBA", "BAAB"}
        assert ended.facts["order"] == " ".join(rounds)
        orders.add(ended.facts["order"])
        firsts.add(ended.facts["started_first"])
    assert len(orders) > 10
    assert firsts == {"base", "candidate"}


def test_both_are_started_before_either_is_waited_for_and_gone_at_the_end() -> None:
    _, log = pair()
    words = [what for _, what in log]
    assert words[:4] == ["start", "start", "ready", "ready"]
    assert words[-4:] == ["quit", "quit", "gone", "gone"]


def test_a_pilot_finds_the_length_of_a_slice_by_itself() -> None:
    ended, log = pair(frozen=None)
    assert [what for _, what in log if what.startswith("run")] == ["run 3"] * 2 + ["run 5"] * 8
    assert ended.sample_s == pytest.approx(0.02)


def test_a_side_that_never_becomes_ready_ends_the_pair_and_both_say_how_they_ended() -> None:
    ended, log = pair(ready=False)
    assert not [what for _, what in log if what.startswith("run")]
    assert [result.state for result in ended.results] == [State.OK, State.FAILED]
    assert ended.sample_s is None
    assert ended.facts["order"] == ""


@pytest.mark.parametrize("frozen", [FROZEN, None])
def test_a_side_that_dies_in_a_slice_ends_the_pair(frozen: Frozen | None) -> None:
    ended, log = pair(frozen, ends_after=2)
    assert [result.state for result in ended.results] == [State.OK, State.FAILED]
    assert sum(1 for name, what in log if name == "B" and what.startswith("run")) == 3
    assert ended.sample_s is None


@given(st.floats(1e-9, 1e4))
def test_slices_last_about_a_tenth_of_a_second_and_drop_their_first_sample_where_they_can(s: float) -> None:
    samples = slice_samples(s)
    assert samples >= 1
    assert samples == 1 or samples * s <= 0.5 + s
    if s <= 0.25:
        assert samples >= 2


@given(st.floats(0, 1e3), st.floats(1e-9, 1e3))
def test_rounds_are_even_and_bounded(seconds: float, sample_s: float) -> None:
    rounds = rounds_for(seconds, sample_s, slice_samples(sample_s))
    assert rounds % 2 == 0
    assert LEAST_ROUNDS <= rounds <= MOST_ROUNDS
