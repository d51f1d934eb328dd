"""Looking at growing data without alarming too often, and what the driver is told."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from judging import noise, row, values_row
from scipy import stats

from matrix.judge import looks, spending
from matrix.judge.rows import Sides, Stage


@pytest.mark.parametrize(
    ("schedule", "alpha", "wanted"),
    [
        # published to three digits from simulation
        (spending.LOOKS, 0.025, (0.00621, 0.00793, 0.01586)),
        (spending.LOOKS, 0.05, (0.01242, 0.01667, 0.03377)),
        (spending.CHEAP_LOOKS, 0.025, (0.00494, 0.00477, 0.00642, 0.00785, 0.01321)),
        (spending.CHEAP_LOOKS, 0.05, (0.00985, 0.01006, 0.01376, 0.01700, 0.02846)),
    ],
)
def test_levels_of_the_looks_are_the_tabulated_ones(
    schedule: tuple[int, ...], alpha: float, wanted: tuple[float, ...]
) -> None:
    found = spending.nominal_levels(schedule, alpha, schedule[-1])
    assert found == pytest.approx(wanted, rel=0.02)
    assert found[0] == pytest.approx(alpha * schedule[0] / schedule[-1], rel=1e-4)  # nothing spent before


@pytest.mark.parametrize("schedule", [(4, 8, 16), (4, 6), (3,), (4, 8, 13)])
def test_looks_together_alarm_as_often_as_was_spent(schedule: tuple[int, ...]) -> None:
    levels = spending.nominal_levels(schedule, 0.05, 16)
    sums = np.random.default_rng(3).standard_normal((200_000, 16)).cumsum(axis=1)
    alarm = np.zeros(200_000, dtype=bool)
    for n, level in zip(schedule, levels, strict=True):
        alarm |= sums[:, n - 1] / math.sqrt(n) >= stats.norm.isf(level)
    wanted = 0.05 * schedule[-1] / 16
    assert alarm.mean() == pytest.approx(wanted, abs=4 * math.sqrt(wanted / 200_000))


def test_holms_correction_is_the_definition() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    # ordered .005x4, .01x3, .03x2, .04x1, made monotone
    assert spending.holm(p).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert spending.holm([]).tolist() == []
    assert spending.holm([0.7, 0.9]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("suspects", [1, 10, 300])
def test_confirming_blocks_confirm_ninety_percent_of_real_suspects(suspects: int) -> None:
    s, se, effect = 0.03, 0.0, 0.035
    blocks = spending.confirm_blocks(s, effect, se, suspects, 0.05)
    assert spending.LEAST_CONFIRM <= blocks <= spending.MOST_CONFIRM
    d = np.random.default_rng(1).normal(effect, s, (4000, blocks))
    p = stats.ttest_1samp(d, 0, axis=1, alternative="greater").pvalue
    assert (p <= min(0.025, 0.05 / suspects)).mean() > 0.85


def test_confirming_blocks_have_bounds() -> None:
    assert spending.confirm_blocks(0.001, 0.5, 0.001, 1, 0.05) == spending.LEAST_CONFIRM
    assert spending.confirm_blocks(0.5, 0.01, 0.02, 1, 0.05) == spending.MOST_CONFIRM


def state(*args: object, **kw: object) -> looks.State:
    (found,) = looks.state_of([row(*args, **kw)])  # type: ignore[arg-type]
    return found


def test_a_new_row_waits_for_its_first_look() -> None:
    assert (state(noise(3)).status, state(noise(3)).blocks) == ("open", 1)
    (empty,) = looks.state_of([values_row({}, {})])
    assert (empty.status, empty.blocks, empty.stage) == ("open", 4, Stage.SCREEN)


@pytest.mark.parametrize("n", [5, 6, 7])
def test_nothing_is_decided_between_two_looks(n: int) -> None:
    # the first four blocks say nothing, what follows would decide
    d = np.r_[noise(4, sd=0.05), np.full(n - 4, 0.5)]
    found = state(d)
    assert (found.status, found.blocks) == ("open", 8 - n)


def test_a_quiet_row_without_change_is_decided_at_the_first_look() -> None:
    found = state(noise(4, sd=0.003))
    assert (found.status, found.reason) == ("decided", "no worse after 4 blocks")


def test_a_slower_row_is_a_suspect_and_says_how_many_fresh_blocks_it_wants() -> None:
    found = state(noise(4) + 0.2)
    assert (found.status, found.direction, found.stage) == ("suspect", "worse", Stage.CONFIRM)
    assert found.blocks == 8
    assert state(noise(4) - 0.2).direction == "better"


def test_a_suspect_whose_fresh_blocks_are_there_is_not_looked_at_again() -> None:
    assert state(noise(4) + 0.2, confirm=noise(3)).blocks == 5
    done = state(noise(4) + 0.2, confirm=noise(8))
    assert (done.status, done.blocks) == ("decided", 0)


def test_more_suspects_need_more_blocks_each() -> None:
    quiet = [row(noise(4, i, sd=0.02), f"quiet {i}") for i in range(20)]
    slow = [row(noise(4, i, sd=0.02) + 0.036, f"slow {i}") for i in range(9)]
    one = looks.state_of([*slow[:1], *quiet])
    many = looks.state_of([*slow, *quiet])
    assert one[0].status == many[0].status == "suspect"
    assert 8 < one[0].blocks < many[0].blocks < 30


def test_a_row_that_no_look_decides_is_exhausted() -> None:
    assert state(noise(16, sd=0.1)).status == "exhausted"
    assert state(noise(20, sd=0.1)).status == "exhausted"


def test_the_first_decision_stands_whatever_later_blocks_say() -> None:
    quiet = noise(4, sd=0.003)
    assert state(quiet).status == "decided"
    assert state(np.r_[quiet, np.full(12, 0.3)]).reason == "no worse after 4 blocks"
    suspect = noise(4) + 0.2
    assert state(np.r_[suspect, np.zeros(12)]).reason == "after 4 blocks"


def test_rows_that_measuring_cannot_help_ask_for_nothing() -> None:
    rows = [
        row(noise(4), "a", not_comparable="precision differs"),
        row([0.0], "b", fixed=True),
        row([0.0], "c", mirrors="latency_ms", metric="throughput_items_s", better="higher"),
        values_row({"1": 0.0, "2": 1.0}, {"1": 1.0, "2": 1.0}, workload="d"),
    ]
    assert [s.status for s in looks.state_of(rows)] == ["decided", "decided", "decided", "exhausted"]


def test_a_block_that_one_side_lost_is_no_block() -> None:
    base = {str(i): 10.0 for i in range(4)}
    candidate = {str(i): 10.0 for i in range(3)}
    (found,) = looks.state_of([row(clocks={"wall": Sides(base=base, candidate=candidate)})])
    assert (found.status, found.blocks) == ("open", 1)


def test_a_metric_that_most_blocks_do_not_have_does_not_ask_for_more_of_them() -> None:
    stages = {str(i): Stage.SCREEN for i in range(8)}
    once = values_row({"memory launch": 1.0}, {"memory launch": 1.0}, stages=stages)
    (found,) = looks.state_of([once])
    assert (found.status, found.blocks) == ("exhausted", 0)
    assert "1 of 8 blocks" in found.reason
    lost_one = row(noise(7, sd=0.1), stages=stages)
    assert looks.state_of([lost_one])[0].status == "open"


def test_blocks_are_taken_in_the_order_of_their_labels_by_number() -> None:
    quiet, wild = noise(4, sd=0.003), np.full(12, 0.5)
    labels = [str(i) for i in range(1, 17)]  # "10" sorts before "2" as text
    ratios = dict(zip(labels, [*quiet, *wild], strict=True))
    for order in (labels, labels[::-1]):
        sides = Sides(base=dict.fromkeys(order, 1.0), candidate={x: math.exp(ratios[x]) for x in order})
        (found,) = looks.state_of([row(clocks={"wall": sides})])
        assert found.reason == "no worse after 4 blocks"


def test_asking_while_rows_grow_gives_what_asking_at_the_end_gives() -> None:
    rng = np.random.default_rng(11)
    full = [rng.normal(0.01 * (i % 4), 0.02, 16) for i in range(40)]
    have = [4] * 40
    while True:
        states = looks.state_of(
            [row(d[:n], f"w{i}") for i, (d, n) in enumerate(zip(full, have, strict=True))]
        )
        wants = [s.blocks if s.status == "open" else 0 for s in states]
        if not any(wants):
            break
        have = [n + more for n, more in zip(have, wants, strict=True)]
    decided = {s.status for s in states}
    assert {"decided", "suspect"} <= decided
    again = looks.state_of([row(d[:n], f"w{i}") for i, (d, n) in enumerate(zip(full, have, strict=True))])
    assert again == states


@pytest.mark.parametrize("pair", [*itertools.combinations(range(3), 2)])
def test_rows_do_not_disturb_each_other_without_a_common_family(pair: tuple[int, int]) -> None:
    rows = [row(noise(4, sd=0.003), "a"), row(noise(4) + 0.2, "b"), row(noise(16, sd=0.1), "c")]
    alone = [looks.state_of([one])[0] for one in rows]
    together = looks.state_of([rows[i] for i in pair])
    assert [s.status for s in together] == [alone[i].status for i in pair]
