"""Every formula against SciPy or a computation by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import noise
from scipy import stats

from matrix.judge import distributions as dist
from matrix.judge import paired


def numbers_of(d: np.ndarray, margin: float = 0.03, prior: paired.Prior | None = None) -> paired.Tested:
    prior = prior or paired.Prior()
    mean, variance = paired.moments(d.tolist())
    columns = {
        "n": len(d),
        "delta": mean,
        "variance": variance,
        "margin": math.log1p(margin),
        "prior_df": prior.df,
        "prior_variance": prior.variance,
    }
    return paired.test(**{name: np.array([float(x)]) for name, x in columns.items()})


@pytest.mark.parametrize("n", [3, 4, 8, 30])
def test_probabilities_and_interval_are_those_of_the_paired_t_test(n: int) -> None:
    d = np.random.default_rng(n).normal(0.01, 0.02, n)
    mine = numbers_of(d)
    assert mine.p_worse[0] == pytest.approx(stats.ttest_1samp(d, 0, alternative="greater").pvalue)
    assert mine.p_better[0] == pytest.approx(stats.ttest_1samp(d, 0, alternative="less").pvalue)
    margin = math.log1p(0.03)
    assert mine.p_no_worse[0] == pytest.approx(stats.ttest_1samp(d, margin, alternative="less").pvalue)
    assert mine.p_no_better[0] == pytest.approx(stats.ttest_1samp(d, -margin, alternative="greater").pvalue)
    low, high = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert (mine.low[0], mine.high[0]) == pytest.approx((low, high))
    t = stats.t(n - 1)
    assert mine.mde[0] == pytest.approx((t.ppf(0.975) + t.ppf(0.8)) * d.std(ddof=1) / math.sqrt(n))


def test_a_change_of_the_mde_is_found_in_80_percent_of_cases() -> None:
    rng = np.random.default_rng(5)
    n, sd = 8, 0.02
    mde = float(numbers_of(noise(n, sd=sd)).mde[0])
    d = rng.normal(mde, sd, (20_000, n))
    found = stats.ttest_1samp(d, 0, axis=1, alternative="greater").pvalue <= 0.025
    assert found.mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("sizes", [(4, 9), (30, 30)])
def test_the_unpaired_test_is_welchs(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 0.01, sizes[0]), rng.normal(0.02, 0.03, sizes[1])
    mine, theirs = paired.welch(a.tolist(), b.tolist(), 0.03), stats.ttest_ind(b, a, equal_var=False)
    assert 2 * mine.p_worse[0] == pytest.approx(theirs.pvalue)
    assert (mine.low[0], mine.high[0]) == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_the_unpaired_test_of_constants_is_exact() -> None:
    mine = paired.welch([1.0, 1.0], [1.1, 1.1, 1.1], 0.03)
    assert mine.low[0] == mine.high[0] == pytest.approx(0.1)
    assert mine.p_worse[0] == 0.0


def test_values_without_variance_are_exact() -> None:
    assert numbers_of(np.zeros(5)).p_worse[0] == 1.0
    assert numbers_of(np.zeros(5)).p_no_worse[0] == 0.0
    worse = numbers_of(np.full(5, 0.1))
    assert worse.p_worse[0] == 0.0
    assert worse.p_no_worse[0] == 1.0
    assert worse.low[0] == worse.high[0] == worse.delta[0]
    assert worse.mde[0] == 0.0


def test_a_family_says_how_much_its_rows_vary() -> None:
    # truth: variances of rows are scaled inverse chi-square with 6 degrees of freedom around 1e-4
    rng = np.random.default_rng(1)
    variances = 1e-4 * 6 / rng.chisquare(6, 4000)
    s2 = variances * rng.chisquare(5, 4000) / 5
    found = paired.prior(s2, np.full(4000, 5.0))
    assert found.df == pytest.approx(6.0, rel=0.15)
    assert found.variance == pytest.approx(1e-4, rel=0.05)


def test_rows_that_are_all_alike_count_for_eight_degrees_of_freedom_at_most() -> None:
    s2 = 1e-4 * np.random.default_rng(1).chisquare(5, 4000) / 5
    found = paired.prior(s2, np.full(4000, 5.0))
    assert found.df == paired.MOST_PRIOR_DF
    assert found.variance == pytest.approx(1e-4, rel=0.05)
    even = paired.prior(np.full(20, 1e-4), np.full(20, 5.0))  # less varied than chance allows
    assert even.df == paired.MOST_PRIOR_DF


def test_fewer_than_ten_rows_say_nothing_of_the_others() -> None:
    assert paired.prior(np.full(9, 1e-4), np.full(9, 3.0)) == paired.Prior()
    with_constants = np.r_[np.full(9, 1e-4), np.zeros(50)]
    assert paired.prior(with_constants, np.full(59, 3.0)) == paired.Prior()


def test_moderation_follows_the_formula_and_spares_a_row_unlike_the_others() -> None:
    d0, s0, f = 4.0, 1e-4, 3.0
    limit = s0 * stats.f.ppf(0.95, f, d0)
    s2 = np.array([0.0, 0.5e-4, 0.99 * limit, 1.01 * limit])
    variance, nu = paired.moderated(s2, np.full(4, f), np.full(4, d0), np.full(4, s0))
    assert variance[:3] == pytest.approx((d0 * s0 + f * s2[:3]) / (d0 + f))
    assert nu.tolist() == [7.0, 7.0, 7.0, 3.0]
    assert variance[3] == s2[3]


@given(st.floats(1e-4, 1e4))
def test_the_inverse_of_the_trigamma_function_inverts_it(y: float) -> None:
    assert float(dist.trigamma(dist.trigamma_inverse(y))) == pytest.approx(y, rel=1e-8)


def test_distributions_are_scipys() -> None:
    assert float(dist.f_quantile(0.95, 3, 8)) == pytest.approx(stats.f.ppf(0.95, 3, 8))
    assert dist.chi2_quantile(0.99, 7) == pytest.approx(stats.chi2.ppf(0.99, 7))
    assert dist.binomial_at_least(3, 20, 0.05) == pytest.approx(stats.binom.sf(2, 20, 0.05))
    assert dist.binomial_at_least(0, 20, 0.05) == 1.0


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=9))
def test_the_sign_flip_probability_is_counted_over_every_flip(d: list[float]) -> None:
    flips = np.array(list(itertools.product([1, -1], repeat=len(d)))) @ np.array(d)
    slack = 1e-9 * np.abs(d).sum()
    assert paired.sign_flip([d]) == [pytest.approx(np.mean(flips >= sum(d) - slack))]


def test_sign_flips_of_many_blocks_are_random_but_always_the_same() -> None:
    d = np.random.default_rng(1).normal(0.4, 1, 30)
    (p,) = paired.sign_flip([d.tolist()])
    assert p == pytest.approx(float(stats.ttest_1samp(d, 0, alternative="greater").pvalue), abs=0.01)
    assert paired.sign_flip([d[::-1].tolist()]) == [p]
    assert paired.sign_flip([[1.0] * 30]) == [1 / 4097]


@pytest.mark.parametrize("sd", [0.012, 0.0246, 0.05, 0.2])
@pytest.mark.parametrize("n", [3, 4, 8])
def test_needed_blocks_are_as_many_as_the_rule_itself_asks_for(n: int, sd: float) -> None:
    more = int(paired.needed_blocks(numbers_of(noise(n, sd=sd)))[0])
    assert numbers_of(noise(n + more, sd=sd)).precise[0]
    assert more == 1 or not numbers_of(noise(n + more - 1, sd=sd)).precise[0]


def test_an_effect_in_the_middle_of_the_margin_needs_more_blocks_than_none() -> None:
    at = [int(paired.needed_blocks(numbers_of(noise(4, sd=0.02) + x))[0]) for x in (0.0, 0.015, 0.1)]
    assert at[1] > at[0] >= at[2] >= 1


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30), st.randoms())
def test_moments_do_not_depend_on_order_and_mirror_exactly(d: list[float], random: object) -> None:
    mean, variance = paired.moments(d)
    shuffled = d[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert paired.moments(shuffled) == (mean, variance)
    assert paired.moments([-x for x in d]) == (-mean, variance)
