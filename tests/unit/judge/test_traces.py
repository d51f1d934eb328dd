"""The file in which recorded sessions are shipped with the bench."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.verdicts import machine, tables, traces


def columns(blocks: int = 4, samples: int = 6) -> dict[str, np.ndarray]:
    n = blocks * 2 * samples
    process = np.repeat(np.arange(2 * blocks), samples)
    wall = 10_000_000 + 1000 * np.arange(n)
    return {
        "process": process,
        "block": process // 2,
        "arm": process % 2,
        "slice": np.tile(np.repeat([0, 1], samples // 2), 2 * blocks),
        "start_ns": np.arange(n) * 20_000_000,
        "wall_ns": wall,
        "cpu_ns": wall,
        "nivcsw": np.zeros(n),
        "calls": np.ones(n),
    }


def test_a_session_comes_back_as_it_was_saved_whatever_the_order_of_samples(tmp_path: Path) -> None:
    given = columns()
    mixed = np.random.default_rng(1).permutation(len(given["process"]))
    traces.save(tmp_path / "a.npz", {"state": "calm"}, given)
    traces.save(tmp_path / "b.npz", {"state": "calm"}, {k: v[mixed] for k, v in given.items()})
    one, other = traces.load(tmp_path / "a.npz"), traces.load(tmp_path / "b.npz")
    assert one.about == {"state": "calm"}
    assert len(one.blocks) == 4
    for pair, again in zip(one.blocks, other.blocks, strict=True):
        for process, same in zip(pair, again, strict=True):
            assert process.clocks == same.clocks
            assert process.wall.tolist() == same.wall.tolist()
            assert len(process.wall) == 4  # the first sample of both slices is dropped


def test_a_block_with_one_side_is_left_out(tmp_path: Path) -> None:
    given = columns()
    kept = given["process"] != 3
    traces.save(tmp_path / "a.npz", {}, {k: v[kept] for k, v in given.items()})
    assert len(traces.load(tmp_path / "a.npz").blocks) == 3


def test_missing_columns_are_refused(tmp_path: Path) -> None:
    given = columns()
    del given["cpu_ns"]
    with pytest.raises(ValueError, match="cpu_ns"):
        traces.save(tmp_path / "a.npz", {}, given)


def test_trials_give_every_layout_the_same_processes(tmp_path: Path) -> None:
    traces.save(tmp_path / "a.npz", {"state": "calm"}, columns(12))
    session = traces.load(tmp_path / "a.npz")
    trials = session.trials(8, 5, np.random.default_rng(1))
    assert len(trials) == 5
    for trial in trials:
        assert len(trial.pairs) == 8
        assert [len(side) for side in trial.halves] == [8, 8]
        assert [len(side) for side in trial.rounds] == [8, 8]
    with pytest.raises(ValueError, match="needs 20"):
        session.trials(20, 5, np.random.default_rng(1))


def test_on_a_bursty_machine_live_pairs_tell_more_than_one_after_the_other() -> None:
    rng = np.random.default_rng(4)
    lines = {line.name: line for line in tables.compare([machine.trial("bursty", rng) for _ in range(12)])}
    ours = lines["ours, live pairs, wall"]
    assert ours.false_alarms <= 0.09
    assert ours.mde < 0.10 < lines["hyperfine Welch"].mde


def test_bounds_are_clopper_and_pearsons() -> None:
    assert tables.upper_bound(0, 59) == pytest.approx(0.05, abs=0.001)  # the rule of three
    assert tables.upper_bound(5, 5) == 1.0
