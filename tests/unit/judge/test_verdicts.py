"""What is said of rows whose truth is known: a change of every size, none, and values that are no values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from judging import noise, row, values_row

from matrix.judge import reasons
from matrix.judge.rows import Row, Sides, Stage, Verdict, Word
from matrix.judge.verdicts import judge


def said(one: Row, **kw: Any) -> Verdict:
    (verdict,) = judge([one], **kw).verdicts
    return verdict


def test_a_plain_row_is_regressed_by_its_interval_and_says_how_much() -> None:
    found = said(row(noise(10) + 0.1, block_s=2.0))
    assert found.verdict is Word.REGRESSED
    assert found.effect == pytest.approx(math.expm1(0.1))
    assert found.low is not None and found.high is not None and found.low < found.effect < found.high
    assert found.delta is not None and found.effect == pytest.approx(math.expm1(found.delta))
    assert (found.n, found.clock, found.layout, found.margin) == (10, "wall", "live-pair", 0.03)
    assert found.base == pytest.approx(10.0)
    assert found.candidate == pytest.approx(10.0 * math.exp(0.1))
    assert found.p_worse is not None and found.p_worse < 1e-6
    assert found.p_sign_flip == pytest.approx(2**-10)
    assert found.needed_blocks is None


def test_the_mirror_image_is_improved() -> None:
    found = said(row(noise(10) - 0.1))
    assert (found.verdict, found.reason) == (Word.IMPROVED, "")


def test_nothing_planted_on_a_quiet_machine_is_no_worse() -> None:
    found = said(row(noise(10)))
    assert (found.verdict, found.reason) == (Word.NO_WORSE, "")
    assert found.mde is not None and found.mde < 0.03


@pytest.mark.parametrize("sign", [1, -1])
def test_a_real_change_that_is_too_small_to_matter_is_no_worse_and_says_its_size(sign: int) -> None:
    found = said(row(noise(10, sd=0.005) + sign * 0.01))
    assert found.verdict is Word.NO_WORSE
    assert f"{sign * 1.0:+.1f} %" in found.reason and "within the margin of 3 %" in found.reason


def test_noise_that_hides_the_margin_is_inconclusive_and_says_what_it_would_take() -> None:
    found = said(row(noise(10, sd=0.1), block_s=2.0))
    assert found.verdict is Word.INCONCLUSIVE
    assert found.mde is not None and found.mde > 0.03
    assert "not precise enough" in found.reason and "3 % matters" in found.reason
    assert found.needed_blocks is not None and found.needed_s == 2.0 * found.needed_blocks
    assert "more blocks" in found.reason


def test_a_lucky_row_is_not_certified_by_a_measurement_that_could_not_have_seen_the_margin() -> None:
    found = said(row(noise(10, sd=0.1) - 0.065))
    assert found.p_no_worse is not None and found.p_no_worse < 0.025
    assert found.verdict is Word.INCONCLUSIVE


def test_an_effect_near_the_margin_is_neither() -> None:
    found = said(row(noise(40, sd=0.056) + 0.015))
    assert found.verdict is Word.INCONCLUSIVE
    assert "between -0.3 % and +3.3 %: neither a change nor within the margin of 3 %" in found.reason


def test_an_unsteady_row_may_be_regressed_but_not_certified() -> None:
    assert said(row(noise(10) + 0.1, unsteady="calls drift")).verdict is Word.REGRESSED
    found = said(row(noise(10), unsteady="calls drift"))
    assert (found.verdict, found.reason) == (Word.INCONCLUSIVE, "unsteady: calls drift")


def test_one_of_many_rows_that_looks_bad_by_chance_is_a_suspect_and_not_regressed() -> None:
    odd = row(noise(10, sd=0.03) + 0.03, "odd")
    assert said(odd).verdict is Word.REGRESSED
    others = [row(noise(10, seed), f"w{seed}") for seed in range(300)]
    found = judge([odd, *others]).verdicts[0]
    assert found.verdict is Word.INCONCLUSIVE
    assert "suspect of +3.0 %" in found.reason and "301 rows" in found.reason


# values that are no values


BAD: list[Any] = [0.0, -1.0, math.nan, math.inf, None, "fast"]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("side", ["base", "candidate"])
def test_a_value_without_a_logarithm_makes_the_row_inconclusive_and_is_named(bad: Any, side: str) -> None:
    good = {str(i): 10.0 for i in range(6)}
    values = {"base": dict(good), "candidate": dict(good)}
    values[side]["3"] = bad
    found = said(values_row(values["base"], values["candidate"]))
    assert found.verdict is Word.INCONCLUSIVE
    assert f"{side}, block 3" in found.reason
    assert found.effect is None and found.delta is None


@pytest.mark.parametrize("bad", BAD)
def test_a_side_without_any_value_is_not_comparable(bad: Any) -> None:
    found = said(values_row({"1": bad, "2": bad}, {"1": 1.0, "2": 1.0}))
    assert found.verdict is Word.NOT_COMPARABLE
    assert found.reason.startswith("base: no value above zero")
    assert found.candidate == pytest.approx(1.0)


def test_rows_with_no_values_at_all_say_so() -> None:
    assert said(values_row({}, {"1": 1.0})).reason == "base: no values"
    assert said(row(clocks={})).verdict is Word.NOT_COMPARABLE
    apart = said(values_row({"1": 1.0}, {"2": 1.0}))
    assert (apart.verdict, apart.reason) == (
        Word.INCONCLUSIVE,
        "not interleaved: the sides have no block in common",
    )


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_common_blocks_are_inconclusive_with_what_is_missing(n: int) -> None:
    base = {str(i): 10.0 + i for i in range(n + 3)}
    found = said(values_row(base, {str(i): 20.0 for i in range(n)}, block_s=5.0))
    assert found.verdict is Word.INCONCLUSIVE
    assert (found.n, found.needed_blocks, found.needed_s) == (n, 3 - n, 5.0 * (3 - n))
    assert found.effect is not None
    assert (found.low is None) is (n == 1)


def test_only_common_blocks_count() -> None:
    base = {str(i): 10.0 for i in range(8)} | {"99": 1000.0}
    found = said(values_row(base, {str(i): 10.0 for i in range(8)} | {"98": 0.0}))
    assert (found.verdict, found.n, found.effect) == (Word.NO_WORSE, 8, 0.0)


def test_no_rows_are_no_verdicts() -> None:
    assert judge([]).verdicts == ()


# values without chance


def test_a_value_that_never_varies_is_judged_by_itself() -> None:
    same, more = dict.fromkeys("abc", 100.0), dict.fromkeys("abc", 120.0)
    assert said(values_row(same, same)).verdict is Word.NO_WORSE
    assert said(values_row(same, more)).verdict is Word.REGRESSED
    assert said(values_row(more, same)).verdict is Word.IMPROVED
    assert said(values_row(same, dict.fromkeys("abc", 101.0))).verdict is Word.NO_WORSE
    found = said(values_row(same, more))
    assert found.low == found.effect == found.high
    assert found.mde == 0.0


def test_values_that_never_vary_do_not_upset_a_family_that_does() -> None:
    noisy = [row(noise(8, s, sd=0.01), f"w{s}") for s in range(12)]
    constant = [row([0.2] * 8, "up"), row([0.0] * 8, "same")]
    found = judge([*noisy, *constant]).verdicts
    assert [v.verdict for v in found[-2:]] == [Word.REGRESSED, Word.NO_WORSE]
    assert all(v.verdict is Word.NO_WORSE for v in found[:12])
    # among rows that vary, a row that happens not to is not taken for exact
    assert found[-1].mde is not None and found[-1].mde > 0


@pytest.mark.parametrize(
    ("candidate", "word"),
    [(106.0, Word.REGRESSED), (105.0, Word.NO_WORSE), (100.0, Word.NO_WORSE), (94.0, Word.IMPROVED)],
)
def test_a_fixed_value_is_judged_by_its_margin_alone(candidate: float, word: Word) -> None:
    found = said(values_row({"": 100.0}, {"": candidate}, fixed=True, margin=0.05, metric="image_bytes"))
    assert found.verdict is word
    assert found.effect == pytest.approx(candidate / 100 - 1)
    assert found.low is None and found.mde is None


def test_a_fixed_value_of_zero_is_not_comparable() -> None:
    assert said(values_row({"": 0.0}, {"": 5.0}, fixed=True)).verdict is Word.NOT_COMPARABLE


def test_what_is_not_comparable_stays_so() -> None:
    found = said(row(noise(10) + 0.5, not_comparable="precision differs: fp32, bf16"))
    assert (found.verdict, found.reason) == (Word.NOT_COMPARABLE, "precision differs: fp32, bf16")


# metrics and layouts


def test_where_more_is_better_a_loss_is_worse() -> None:
    base = {str(i): 100.0 for i in range(6)}
    slower = {str(i): 80.0 + 0.01 * i for i in range(6)}
    found = said(values_row(base, slower, better="higher", metric="throughput_items_s", unit="items/s"))
    assert found.verdict is Word.REGRESSED
    assert found.delta == pytest.approx(math.log(100 / 80), rel=1e-2)
    assert (found.base, found.candidate) == (pytest.approx(100.0), pytest.approx(80.0, rel=1e-2))


def test_a_derived_metric_repeats_the_verdict_in_its_own_unit() -> None:
    slow = row(noise(10) + 0.1)
    speed = values_row(
        {str(i): 100.0 for i in range(10)},
        {str(i): 100.0 * math.exp(-x) for i, x in enumerate(noise(10) + 0.1)},
        metric="throughput_items_s",
        unit="items/s",
        better="higher",
        mirrors="latency_ms",
    )
    for rows in ([slow, speed], [speed, slow]):
        by_metric = {v.metric: v for v in judge(rows).verdicts}
        mine, theirs = by_metric["throughput_items_s"], by_metric["latency_ms"]
        assert (mine.verdict, mine.delta, mine.delta_low, mine.n) == (
            Word.REGRESSED,
            theirs.delta,
            theirs.delta_low,
            10,
        )
        assert (mine.unit, mine.base) == ("items/s", pytest.approx(100.0))
        assert mine.candidate == pytest.approx(100.0 * math.exp(-0.1))


def test_a_derived_metric_without_its_source_is_judged_by_itself() -> None:
    alone = row(noise(10) + 0.1, metric="throughput_items_s", mirrors="latency_ms")
    assert said(alone).verdict is Word.REGRESSED


def test_derived_metrics_are_not_counted_among_the_rows() -> None:
    odd = row(noise(10, sd=0.03) + 0.036, "odd")
    copies = [row(noise(10), "odd", metric=f"m{i}", mirrors="latency_ms") for i in range(300)]
    assert judge([odd, *copies]).verdicts[0].verdict is Word.REGRESSED


def test_separate_runs_show_an_effect_and_an_interval_but_decide_nothing() -> None:
    found = said(
        values_row(
            {"a1": 10.0, "a2": 10.1, "a3": 9.9}, {"b1": 20.0, "b2": 20.2, "b3": 19.8}, layout="separate-runs"
        )
    )
    assert found.verdict is Word.INCONCLUSIVE
    assert found.reason.startswith("not interleaved:")
    assert found.effect == pytest.approx(1.0, rel=1e-3)
    assert found.low is not None and found.low > 0.9
    once = said(values_row({"a": 10.0}, {"b": 20.0}, layout="separate-runs"))
    assert (once.effect, once.low) == (pytest.approx(1.0), None)
    none = said(values_row({"a": 10.0}, {"b": math.nan}, layout="separate-runs"))
    assert none.verdict is Word.NOT_COMPARABLE


def test_separate_runs_of_a_fixed_value_are_judged() -> None:
    found = said(values_row({"a": 1.0}, {"b": 2.0}, layout="separate-runs", fixed=True, timing=False))
    assert found.verdict is Word.REGRESSED


# screening and confirming


def test_a_suspect_is_judged_by_its_fresh_blocks_alone() -> None:
    found = said(row(noise(4) + 0.3, confirm=noise(8, 1) + 0.1))
    assert found.verdict is Word.REGRESSED
    assert found.effect == pytest.approx(math.expm1(0.1))
    assert found.screen_effect == pytest.approx(math.expm1(0.3))
    assert found.n == 8


def test_an_improvement_is_confirmed_the_same_way() -> None:
    found = said(row(noise(4) - 0.3, confirm=noise(8, 1) - 0.1))
    assert (found.verdict, found.n) == (Word.IMPROVED, 8)
    assert found.screen_effect == pytest.approx(math.expm1(-0.3))


def test_a_suspect_that_fresh_blocks_clear_is_no_worse() -> None:
    found = said(row(noise(4) + 0.3, confirm=noise(8, 1)))
    assert found.verdict is Word.NO_WORSE
    assert found.effect == pytest.approx(0.0, abs=1e-12)


def test_a_suspect_that_fresh_blocks_neither_clear_nor_confirm_is_inconclusive() -> None:
    found = said(row(noise(4) + 0.3, confirm=noise(8, 1, sd=0.1)))
    assert found.verdict is Word.INCONCLUSIVE
    assert "suspect of +35.0 %, not confirmed: +0.0 % in 8 fresh blocks" in found.reason


def test_a_suspect_confirmed_to_be_slower_by_less_than_the_margin_is_no_worse() -> None:
    found = said(row(noise(4) + 0.3, confirm=noise(8, 1, sd=0.005) + 0.01))
    assert (found.verdict, found.reason) == (Word.NO_WORSE, "+1.0 %, within the margin of 3 %")


def test_a_suspect_without_fresh_blocks_says_how_many_it_wants() -> None:
    found = said(row(noise(4) + 0.3, confirm=[], block_s=3.0, stages=dict.fromkeys("0123", Stage.SCREEN)))
    assert found.verdict is Word.INCONCLUSIVE
    assert "not confirmed: no confirming blocks" in found.reason
    assert (found.needed_blocks, found.needed_s) == (8, 24.0)
    few = said(row(noise(4) + 0.3, confirm=noise(2)))
    assert "only 2 confirming blocks" in few.reason and few.needed_blocks == 6


def test_an_unconfirmed_improvement_is_still_no_worse() -> None:
    found = said(row(noise(4) - 0.3, confirm=[], stages=dict.fromkeys("0123", Stage.SCREEN)))
    assert found.verdict is Word.NO_WORSE
    assert "not confirmed" in found.reason


def test_fresh_blocks_of_a_row_that_was_no_suspect_are_not_looked_at() -> None:
    found = said(row(noise(4, sd=0.003), confirm=noise(8) + 0.5))
    assert (found.verdict, found.n) == (Word.NO_WORSE, 4)


def test_blocks_measured_for_other_metrics_do_not_change_a_decision() -> None:
    quiet = noise(4, sd=0.003)
    later = np.full(12, 0.5)
    found = said(row(np.r_[quiet, later], confirm=[0.5]))
    assert found.verdict is Word.NO_WORSE


def test_all_suspects_of_a_comparison_share_what_it_may_err() -> None:
    # p of about .015 in the fresh blocks: enough for one, not for one of five
    border = noise(8, 1, sd=0.06) + 0.055
    assert said(row(noise(4) + 0.3, confirm=border)).verdict is Word.REGRESSED
    rows = [row(noise(4) + 0.3, f"w{i}", confirm=border) for i in range(5)]
    rows[1] = row(noise(4) + 0.3, "w1", metric="compile_s", confirm=border)
    found = judge(rows).verdicts
    assert {v.verdict for v in found} == {Word.INCONCLUSIVE}


def test_rows_that_measuring_ended_between_two_looks_are_looked_at_once_more() -> None:
    d = noise(6, sd=0.013)
    found = said(row(d, confirm=[], stages=dict.fromkeys(map(str, range(6)), Stage.SCREEN)))
    assert (found.verdict, found.n) == (Word.NO_WORSE, 6)
    short = said(row(d[:2], confirm=[], stages=dict.fromkeys("01", Stage.SCREEN)))
    assert short.verdict is Word.INCONCLUSIVE and "2 common blocks" in short.reason


def test_blocks_after_the_last_look_are_not_looked_at() -> None:
    d = np.r_[noise(16, sd=0.1), np.full(20, 0.5)]
    found = said(row(d, confirm=[], stages=dict.fromkeys(map(str, range(36)), Stage.SCREEN)))
    assert (found.verdict, found.n) == (Word.INCONCLUSIVE, 16)


def test_both_kinds_of_rows_go_together() -> None:
    found = judge([row(noise(10) + 0.1, "a"), row(noise(4) + 0.3, "b", confirm=noise(8, 1) + 0.1)])
    assert [v.verdict for v in found.verdicts] == [Word.REGRESSED] * 2


# clocks


def two_clocks(wall: np.ndarray, clean: np.ndarray, workload: str = "w", **changes: Any) -> Row:
    first, second = row(wall), row(clean)
    clocks = {"wall": first.clocks["wall"], "wall-clean": second.clocks["wall"]}
    return row(workload=workload, clocks=clocks, **changes)


def test_wall_judges_latency_unless_the_baseline_against_itself_says_it_is_too_rough() -> None:
    one = two_clocks(noise(10), noise(10, sd=0.001) + 0.2)
    assert said(one).clock == "wall"
    calm = [two_clocks(noise(10, sd=0.01), noise(10, sd=0.001), "a")]
    assert said(one, aa=calm).clock == "wall"
    rough = [two_clocks(noise(10, sd=0.2), noise(10, sd=0.01), "a")]
    found = said(one, aa=rough)
    assert (found.clock, found.verdict) == ("wall-clean", Word.REGRESSED)


def test_a_derived_metric_is_shown_by_the_clock_that_judged() -> None:
    rough = [two_clocks(noise(10, sd=0.2), noise(10, sd=0.01), "a")]
    speed = two_clocks(noise(10), noise(10) - 0.2, metric="throughput_items_s", mirrors="latency_ms")
    one = two_clocks(noise(10), noise(10) + 0.2)
    found = judge([one, speed], aa=rough).verdicts[1]
    assert found.clock == "wall-clean"
    assert found.candidate == pytest.approx(10.0 * math.exp(-0.2))


def test_the_candidate_never_chooses_its_clock() -> None:
    calm = [two_clocks(noise(10, sd=0.01), noise(10, sd=0.001), "a")]
    wild = two_clocks(noise(10, sd=0.5), noise(10, sd=0.001))
    assert said(wild, aa=calm).clock == "wall"


def test_wall_stays_where_no_clock_is_precise_or_the_clean_one_is_missing() -> None:
    hopeless = [two_clocks(noise(10, sd=0.2), noise(10, sd=0.2), "a")]
    assert said(two_clocks(noise(10), noise(10)), aa=hopeless).clock == "wall"
    rough = [two_clocks(noise(10, sd=0.2), noise(10, sd=0.01), "a")]
    assert said(row(noise(10)), aa=rough).clock == "wall"
    partly = row(
        clocks={"wall": row(noise(10)).clocks["wall"], "wall-clean": Sides(base={"1": 1.0}, candidate={})}
    )
    assert said(partly, aa=rough).clock == "wall"


# stored order


@pytest.mark.parametrize("seconds", [None, 2.0])
def test_a_reason_says_what_would_settle_it(seconds: float | None) -> None:
    found = said(row(noise(10, sd=0.1), block_s=seconds))
    assert ("min)" in found.reason or " s)" in found.reason) is (seconds is not None)
    assert "would settle it" in found.reason


def test_an_interval_that_leaves_nothing_out_at_an_early_look_says_why_it_decides_nothing() -> None:
    stages = dict.fromkeys("0123", Stage.SCREEN)
    found = said(row(noise(4, sd=0.06) + 0.14, stages=stages))
    assert found.verdict is Word.INCONCLUSIVE and found.delta_low is not None and found.delta_low > 0
    assert found.reason.startswith("looks like +15.0 %, which 4 blocks are too few to make certain; ")


def test_large_changes_are_written_without_powers_of_ten() -> None:
    found = said(row(noise(4, sd=2.0)))
    assert "e+0" not in found.reason and "only a change of" in found.reason
    assert reasons.percent(math.log(58.3)) == "x58.3" and reasons.percent(math.log(10.9)) == "+990.0 %"
