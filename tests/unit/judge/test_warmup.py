"""What a pilot says of warming up, on series whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.judge import warmup


def series(n: int = 200, seed: int = 1, noise: float = 0.02) -> np.ndarray:
    return 10.0 * np.exp(noise * np.random.default_rng(seed).standard_normal(n))


def brute_force(values: np.ndarray) -> int:
    z = np.median(np.log(values[: len(values) // 5 * 5]).reshape(-1, 5), axis=1)
    q = len(z)
    costs = [((z[d:] - z[d:].mean()) ** 2).sum() / (q - d) ** 2 for d in range(q // 2 + 1)]
    return max(5, 5 * int(np.argmin(costs)))


@given(st.integers(0, 1000), st.integers(10, 300))
def test_the_cut_is_the_one_that_minimises_the_formula(seed: int, n: int) -> None:
    values = series(n, seed)
    values[: n // 4] *= 1.3
    assert warmup.mser5(values) == brute_force(values)


@pytest.mark.parametrize("until", [20, 40, 90])
def test_a_late_change_of_tier_is_cut_off(until: int) -> None:
    values = series()
    values[:until] *= 1.2
    assert until <= warmup.mser5(values) <= until + 15


def test_a_series_without_warm_up_loses_little() -> None:
    assert np.median([warmup.mser5(series(seed=seed)) for seed in range(40)]) <= 20


def test_the_frozen_warm_up_is_the_longer_one_of_the_sides() -> None:
    slow = series()
    slow[:60] *= 1.3
    assert warmup.frozen_warmup(series(), slow) == warmup.frozen_warmup(slow, series()) >= 60


@pytest.mark.parametrize("n", [0, 1, 4, 9])
def test_too_few_calls_give_one_batch_and_no_complaint(n: int) -> None:
    assert warmup.mser5(series(n)) == 5
    assert warmup.unsteadiness(series(n), 5) == ""


def test_steady_calls_are_not_called_unsteady() -> None:
    found = [warmup.unsteadiness(series(seed=s), warmup.mser5(series(seed=s))) for s in range(200)]
    assert sum(map(bool, found)) <= 4


def test_calls_that_slow_down_in_the_middle_are_unsteady_although_the_cut_hides_it() -> None:
    values = series()
    values[100:] *= 1.1
    reason = warmup.unsteadiness(values, warmup.mser5(values))
    assert "+10" in reason or "+9" in reason


def test_a_slow_drift_is_unsteady() -> None:
    values = series() * np.linspace(1.0, 1.15, 200)
    assert warmup.unsteadiness(values, 5)


def test_the_time_a_process_measures_follows_its_start_up() -> None:
    assert warmup.tau(4.0, 0.01) == pytest.approx(1.0)
    assert warmup.tau(0.1, 0.01) == warmup.LEAST_TAU_S
    assert warmup.tau(1000.0, 0.01) == warmup.MOST_TAU_S


def test_calls_that_depend_on_each_other_are_measured_longer() -> None:
    values = series(2000, seed=0)
    slow = 10.0 * np.exp(np.repeat(np.log(values[:400] / 10.0), 5))  # five equal calls in a row: g = 5
    cheap = warmup.tau(5.0, 0.1, values, between=2e-4)
    dear = warmup.tau(5.0, 0.1, slow, between=2e-4)
    assert cheap == pytest.approx(np.sqrt(5.0 * 0.1 * 4e-4 / 2e-4), rel=0.25)
    assert dear == pytest.approx(min(2.0, np.sqrt(5) * cheap), rel=0.3)
