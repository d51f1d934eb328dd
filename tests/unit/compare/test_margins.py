"""The smallest change that matters: a share of the value, and at least an amount that somebody notices."""

from __future__ import annotations

import pytest

from matrix import catalog
from matrix.compare.native import Rules
from matrix.judge.rows import Sides

RULES = Rules(registry=catalog.load().metrics)


def clocks(base: float, candidate: float) -> dict[str, Sides]:
    return {"": Sides(base={"0": base}, candidate={"0": candidate})}


def test_a_value_of_seconds_is_judged_by_the_share() -> None:
    assert RULES.margin_at("load_s", clocks(2.0, 2.1)) == 0.10


def test_a_start_of_milliseconds_may_change_by_ten_milliseconds() -> None:
    assert RULES.margin_at("load_s", clocks(0.002, 0.002)) == pytest.approx(0.010 / 0.002)
    assert RULES.margin_at("first_call_ms", clocks(2.0, 2.0)) == pytest.approx(0.5)


def test_the_margin_is_the_same_whichever_side_is_the_base() -> None:
    assert RULES.margin_at("load_s", clocks(0.01, 0.03)) == RULES.margin_at("load_s", clocks(0.03, 0.01))


def test_latency_has_no_amount_that_is_nothing() -> None:
    assert RULES.margin_at("latency_ms", clocks(1e-3, 1e-3)) == 0.03


def test_a_margin_that_was_asked_for_holds_as_it_is() -> None:
    rules = Rules(registry=RULES.registry, margins={"load_s": 0.05})
    assert rules.margin_at("load_s", clocks(0.002, 0.002)) == 0.05


def test_values_that_are_not_positive_leave_the_share() -> None:
    assert RULES.margin_at("load_s", clocks(0.0, 0.0)) == 0.10
