"""The machine's own noise: what was planted is what is found, and what cannot be measured says why."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix import noise
from matrix.cli import main
from matrix.commands import doctor


def planted(monkeypatch: pytest.MonkeyPatch, ratios: list[float]) -> None:
    """Blocks whose second side takes so many times as long as the first; a clock that is always ahead."""
    found = itertools.cycle(ratios)

    def block(*_: Any) -> tuple[list[dict[str, float]], float, float]:
        return [{"wall": 2.0, "cpu": 2.0}, {"wall": 2.0 * next(found), "cpu": 2.0}], 0.02, 1.0

    ticks = itertools.count()
    monkeypatch.setattr(noise, "_block", block)
    monkeypatch.setattr(noise.time, "monotonic", lambda: float(next(ticks)))


def test_the_spread_of_blocks_decides_what_can_be_detected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chance = random.Random(1)
    planted(monkeypatch, [math.exp(chance.gauss(0, 0.01)) for _ in range(400)])
    measured = noise.measure(600, tmp_path)
    wall, cpu = measured.clocks
    assert (wall.clock, cpu.clock) == ("wall", "cpu"), "a clock that has no value is not there"
    assert wall.spread == pytest.approx(0.01, rel=0.15)
    assert wall.low < 0 < wall.high
    effects = {blocks: effect for blocks, effect, _ in wall.detectable}
    # at 16 blocks: (t.975 + t.8) * sd / 4 with 15 degrees of freedom = (2.131 + 0.866) / 4 sd
    assert effects[16] == pytest.approx(math.expm1((2.131 + 0.866) / 4 * wall.spread), rel=1e-3)
    assert effects[4] > effects[8] > effects[16]
    assert cpu.spread == 0
    assert cpu.detectable[0][1] == 0


def test_a_side_that_is_always_slower_shows_in_the_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chance = np.random.default_rng(2)
    planted(monkeypatch, list(np.exp(0.03 + chance.normal(0, 0.005, 50))))
    wall = noise.measure(200, tmp_path).clocks[0]
    assert wall.low > 0
    assert wall.mean == pytest.approx(0.03, abs=0.003)


def test_what_cannot_be_measured_says_why_and_the_doctor_prints_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FRAMEWORK_MATRIX_HOME", str(tmp_path))
    monkeypatch.setattr(noise, "_block", lambda *_: "killed by SIGKILL during load")
    assert main(["doctor", "--noise"]) == 0
    assert "could not be measured: killed by SIGKILL during load" in capsys.readouterr().out


def test_four_real_blocks_give_a_number_for_the_wall_clock(tmp_path: Path) -> None:
    measured = noise.measure(0, tmp_path)
    assert not measured.problem
    assert measured.clocks[0].clock == "wall"
    assert measured.clocks[0].blocks == 4
    assert 0 < measured.clocks[0].detectable[-1][1] < 10


def test_the_table_of_the_doctor_writes_changes_and_intervals_as_a_comparison_does() -> None:
    wall = noise.ClockNoise(
        clock="wall",
        blocks=25,
        mean=math.log(1.015),
        low=math.log(0.99),
        high=math.log(1.04),
        spread=0.06,
        detectable=((4, 0.138, 10.0), (16, 0.048, 38.0)),
    )
    table = doctor._noise_lines(noise.Noise(seconds=61.0, block_s=2.4, clocks=(wall,)))
    (head,) = (line for line in table if "95 % interval" in line)
    (row,) = (line for line in table if line.startswith("wall"))
    assert "difference seen" in head and "4 blocks (10 s)" in head
    assert [text.strip() for text in row.split("  ") if text.strip()] == [
        "wall",
        "13.8 %",
        "4.8 %",
        "+1.5 %",
        "-1.0 % to +4.0 %",
        "25",
    ]
