"""Rotating inputs: each call gets the next copy, and all of them together outgrow the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix_adapters import caches, clock, rotation, tensors
from matrix_adapters.failures import Measured
from matrix_adapters.heartbeat import Heart
from matrix_adapters.launch import Launch

LAST = caches.Caches({2: 1 << 10, 3: 1 << 14}, 1 << 14)


class Recorder:
    """A runner that notes which feed each call got."""

    def __init__(self, *, synchronous: bool = True, writes: bool = False) -> None:
        self.synchronous, self.writes = synchronous, writes
        self.seen: list[int] = []
        self.synced = 0

    def prepare(self, feed: Any) -> Any:
        return dict(feed)

    def run(self, feed: Any) -> Any:
        self.seen.append(id(feed["X"]))
        if self.writes:
            feed["X"][:] = 0
        return feed["X"]

    def sync(self) -> None:
        self.synced += 1

    def fetch(self, outputs: Any) -> Any:
        return {"Y": outputs}


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    monkeypatch.setattr(caches, "read", lambda: LAST)
    return Launch(out_dir=tmp_path, heart=Heart(tmp_path))


@given(size=st.integers(1, 1 << 28), last=st.integers(1 << 10, 1 << 26))
def test_the_copies_together_are_twice_the_cache_or_as_many_as_there_may_be(size: int, last: int) -> None:
    count = rotation.copies_needed(size, last)
    assert 2 <= count <= rotation.MOST_COPIES
    assert size * count >= rotation.FACTOR * last or count == rotation.MOST_COPIES
    assert count == 2 or size * (count - 1) < rotation.FACTOR * last  # and not one more than it takes


@given(feeds=st.integers(1, 9), loops=st.lists(st.integers(0, 25), max_size=6), synchronous=st.booleans())
def test_calls_go_round_and_round_across_samples(feeds: int, loops: list[int], synchronous: bool) -> None:
    runner = Recorder(synchronous=synchronous)
    given_feeds = [{"X": np.full(2, n)} for n in range(feeds)]
    loop = clock.rotating_loop_of(runner, given_feeds)
    last = None
    for calls in loops:
        last = loop(None, calls)
    order = [id(feed["X"]) for feed in given_feeds]
    assert runner.seen == [order[n % feeds] for n in range(sum(loops))]
    assert runner.synced == (0 if synchronous else sum(loops))
    if loops and loops[-1]:
        assert last["Y"] is given_feeds[(sum(loops) - 1) % feeds]["X"]


def test_a_launch_rotates_through_copies_of_its_inputs_and_says_so(launch: Launch) -> None:
    runner = Recorder()
    inputs = {"X": np.arange(256, dtype=np.float32)}
    turning = rotation.begin("rotating", runner, inputs, launch)
    turning.loop(None, 64)
    assert len(set(runner.seen)) == 32 == turning.told["cache_copies"]
    assert turning.told["cache_working_set_bytes"] == 2 * LAST.last
    assert turning.told["cache"].startswith("rotating")
    assert launch.flags == []
    turning.check(tensors.fingerprints(inputs))
    assert not any(np.shares_memory(feed["X"], inputs["X"]) for feed in turning.feeds)


def test_a_call_that_writes_into_a_copy_is_caught(launch: Launch) -> None:
    inputs = {"X": np.arange(1, 257, dtype=np.float32)}
    turning = rotation.begin("rotating", Recorder(writes=True), inputs, launch)
    turning.loop(None, 3)
    with pytest.raises(Measured, match="wrote into its inputs"):
        turning.check(tensors.fingerprints(inputs))


def test_inputs_too_small_to_outgrow_the_cache_are_flagged(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "MOST_COPIES", 8)
    rotation.begin("rotating", Recorder(), {"X": np.zeros(1, np.float32)}, launch)
    assert [flag.code for flag in launch.flags] == ["cache_not_exceeded"]


def test_strides_of_an_input_are_kept(launch: Launch) -> None:
    inputs = {"X": np.asfortranarray(np.arange(12.0).reshape(3, 4))}
    turning = rotation.begin("rotating", Recorder(), inputs, launch)
    assert {feed["X"].strides for feed in turning.feeds} == {inputs["X"].strides}


def test_warm_makes_no_copy(launch: Launch) -> None:
    runner = Recorder()
    feed = {"X": np.zeros(4, np.float32)}
    turning = rotation.begin("warm", runner, feed, launch)
    turning.loop(feed, 5)
    assert set(runner.seen) == {id(feed["X"])}
    assert (turning.feeds, turning.told) == ((), {})


def test_a_policy_that_does_not_exist_is_refused(launch: Launch) -> None:
    with pytest.raises(ValueError, match="no cache policy 'cold'"):
        rotation.begin("cold", Recorder(), {}, launch)


def test_cache_sizes_are_read_from_the_kernel_and_instructions_are_no_data(tmp_path: Path) -> None:
    for n, (level, kind, size) in enumerate(
        [
            ("1", "Data", "32K"),
            ("1", "Instruction", "64K"),
            ("2", "Unified", "1024K"),
            ("3", "Unified", "32M"),
        ]
    ):
        folder = tmp_path / f"index{n}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    found = caches.read(tmp_path)
    assert found.levels == {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}
    assert (found.last, found.assumed) == (32 << 20, False)


@pytest.mark.parametrize("size", ["", "many", "-3K", "12Q"])
def test_a_kernel_that_says_nothing_useful_leaves_an_assumption_that_is_marked(
    tmp_path: Path, size: str
) -> None:
    folder = tmp_path / "index0"
    folder.mkdir()
    for name, text in (("level", "3"), ("type", "Unified"), ("size", size)):
        (folder / name).write_text(text)
    assert caches.read(tmp_path) == caches.Caches({}, caches.ASSUMED_BYTES, assumed=True)
