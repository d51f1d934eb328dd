"""A comparison that cannot be trusted takes its verdicts back; one that can keeps them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from judging import noise, row

from matrix.judge.instrument import FAILED
from matrix.judge.rows import Row, Word
from matrix.judge.verdicts import judge


def random_rows(
    count: int, n: int, seed: int, *, name: str = "a", inflate: float = 1.0, **kw: object
) -> list[Row]:
    """Rows of nothing; `inflate` shifts each by so many standard errors more than chance."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        d = rng.normal(0, 0.01, n)
        d += math.sqrt(inflate**2 - 1) * rng.standard_normal() * 0.01 / math.sqrt(n)
        rows.append(row(d, f"{name}{i}", **kw))
    return rows


def test_an_instrument_without_evidence_says_nothing() -> None:
    found = judge([row(noise(10))]).instrument
    assert (found.aa_rows, found.aa_variance, found.control_effect, found.problems) == (0, None, None, ())


def test_the_baseline_against_itself_is_reported() -> None:
    found = judge([row(noise(10))], aa=random_rows(100, 8, 1)).instrument
    assert found.aa_rows == 100
    assert found.aa_alarms <= 11
    assert found.aa_variance == pytest.approx(1.0, abs=0.35)
    assert found.problems == ()


@pytest.mark.parametrize(("count", "n"), [(2, 4), (3, 4), (10, 4), (40, 8)])
def test_a_good_instrument_passes_its_check(count: int, n: int) -> None:
    failed = sum(bool(judge([], aa=random_rows(count, n, seed)).instrument.problems) for seed in range(400))
    assert failed <= 12  # 1 % each way of failing, and then some


def test_an_instrument_that_alarms_without_a_change_takes_its_alarms_back() -> None:
    rows = [row(noise(10) + 0.1, "slow"), row(noise(10) - 0.1, "fast"), row(noise(10), "same")]
    found = judge(rows, aa=random_rows(12, 8, 3, inflate=4.0))
    assert [v.verdict for v in found.verdicts] == [Word.INCONCLUSIVE, Word.INCONCLUSIVE, Word.NO_WORSE]
    assert found.verdicts[0].reason == FAILED
    assert found.verdicts[0].effect == pytest.approx(math.expm1(0.1))
    assert len(found.instrument.problems) == 1
    assert "latency_ms" in found.instrument.problems[0]


def test_intervals_that_are_too_narrow_fail_the_check_without_many_alarms() -> None:
    failed = sum(
        bool(judge([], aa=random_rows(200, 8, seed, inflate=1.4)).instrument.problems) for seed in range(10)
    )
    assert failed >= 9


def test_the_check_of_one_metric_leaves_the_others_alone() -> None:
    rows = [row(noise(10) + 0.1, "a"), row(noise(10) + 0.1, "a", metric="compile_s")]
    found = judge(rows, aa=random_rows(12, 8, 3, inflate=4.0))
    assert [v.verdict for v in found.verdicts] == [Word.INCONCLUSIVE, Word.REGRESSED]


def test_values_that_never_vary_pass_the_check() -> None:
    same = [row([0.0] * 6, f"a{i}", metric="peak_memory_bytes") for i in range(20)]
    found = judge([], aa=same).instrument
    assert (found.aa_rows, found.aa_alarms, found.aa_variance, found.problems) == (20, 0, None, ())


def shifted(shift: float, count: int = 20, n: int = 8) -> list[Row]:
    return [row(noise(n, seed) + shift, f"w{seed}") for seed in range(count)]


def test_where_everything_moves_and_the_control_too_the_machine_moved() -> None:
    shift = math.log(1.12)
    memory = row(noise(8) + shift, "w0", metric="peak_memory_bytes", timing=False)
    size = row([shift], "w0", metric="image_bytes", fixed=True, timing=False)
    found = judge([*shifted(shift), memory, size], control=[row(noise(8, 99) + shift, "control")])
    timing = found.verdicts[:20]
    assert {v.verdict for v in timing} == {Word.INCONCLUSIVE}
    text = "common shift +12.0 %: the control moved too, so the machine moved, not the framework"
    assert {v.reason for v in timing} == {text}
    assert all(v.effect == pytest.approx(0.12) for v in timing)
    assert [v.verdict for v in found.verdicts[20:]] == [Word.REGRESSED, Word.REGRESSED]
    assert found.instrument.common_shift == pytest.approx(0.12)
    assert found.instrument.control_effect == pytest.approx(0.12)
    assert sum("machine moved" in p for p in found.instrument.problems) == 1


def test_where_everything_moves_and_the_control_does_not_the_framework_moved() -> None:
    found = judge(shifted(math.log(1.12)), control=[row(noise(8, 99), "control")])
    assert {v.verdict for v in found.verdicts} == {Word.REGRESSED}
    assert found.instrument.common_shift is None
    assert found.instrument.control_low is not None and found.instrument.control_low < 0
    assert found.instrument.problems == ()


def test_a_control_that_moves_alone_also_spoils_the_comparison() -> None:
    found = judge(shifted(0.0), control=[row(noise(8, 99) - 0.1, "control")])
    assert {v.verdict for v in found.verdicts} == {Word.INCONCLUSIVE}
    assert "the control moved by -9.5 %" in found.verdicts[0].reason


def test_a_control_that_moved_by_nothing_that_matters_spoils_nothing() -> None:
    found = judge(shifted(0.1), control=[row(noise(8, 99, sd=0.001) + 0.01, "control")])
    assert {v.verdict for v in found.verdicts} == {Word.REGRESSED}


@pytest.mark.parametrize(("n", "sd"), [(3, 0.05), (4, 0.03), (8, 0.05), (16, 0.1)])
def test_a_noisy_control_moves_by_chance_once_in_a_hundred_at_most(n: int, sd: float) -> None:
    rng = np.random.default_rng(5)
    moved = sum(
        judge([], control=[row(rng.normal(0, sd, n), "control")]).instrument.problems != ()
        for _ in range(1000)
    )
    assert moved <= 20


def test_rows_that_cannot_be_compared_stay_so_when_the_machine_moved() -> None:
    odd = row(noise(8), "odd", not_comparable="batch differs: 1, 8")
    found = judge([*shifted(0.1), odd], control=[row(noise(8, 99) + 0.1, "control")])
    assert found.verdicts[-1].reason == "batch differs: 1, 8"


def test_a_control_without_enough_blocks_says_nothing() -> None:
    found = judge(shifted(0.1), control=[row([0.5, 0.5], "control")])
    assert found.instrument.control_effect is None
    assert {v.verdict for v in found.verdicts} == {Word.REGRESSED}


def test_what_is_taken_back_is_taken_back_of_a_metric_that_repeats_it_too() -> None:
    slow = [row(noise(8, i) + 0.1, f"w{i}") for i in range(3)]
    rates = {"metric": "throughput_items_s", "better": "higher", "mirrors": "latency_ms"}
    repeated = [dataclasses.replace(one, **rates) for one in slow]
    alarming = [row(noise(8, 50 + i) + 0.1, f"w{i}") for i in range(3)]
    words = {verdict.verdict for verdict in judge([*slow, *repeated], aa=alarming).verdicts}
    assert words == {Word.INCONCLUSIVE}
