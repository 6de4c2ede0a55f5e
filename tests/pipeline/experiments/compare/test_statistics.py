"""Tests and intervals, compared with the numbers of the papers and textbooks they are from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tfx_estimator.pipeline.experiments.compare.statistics import (
    holm,
    kappa,
    mcnemar,
    mean,
    over_seeds,
    paired_difference,
    wilson,
)


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    # Newcombe, Two-sided confidence intervals for the single proportion, 1998, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_an_accuracy_is_wilsons(right, count, low, high):
    found = wilson(right, count)
    assert found.value == right / count
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_many_discordant_pairs_take_the_corrected_chi_square():
    # Agresti, Categorical Data Analysis, table 10.1: 150 and 86; z² without the correction is 17.36.
    found = mcnemar(150, 86)
    assert not found.exact
    assert found.statistic == pytest.approx((150 - 86 - 1) ** 2 / 236)
    # Edwards' example in the literature: 121 and 59.
    found = mcnemar(121, 59)
    assert found.statistic == pytest.approx(20.67, abs=0.005)
    assert found.p == pytest.approx(5.45e-6, rel=0.01)
    assert mcnemar(30, 30).p == 1.0


def test_few_discordant_pairs_take_the_binomial_test():
    # Of 12 throws of a coin, 11 or 12 heads, or tails: 2 (12 + 1) / 2¹².
    found = mcnemar(11, 1)
    assert found.exact
    assert found.p == pytest.approx(26 / 4096)
    assert mcnemar(1, 11).p == found.p
    assert mcnemar(3, 3).p == 1.0
    assert mcnemar(0, 0).p == 1.0
    assert mcnemar(12, 12).exact
    assert not mcnemar(13, 12).exact


def test_the_interval_of_a_paired_difference_is_that_of_bonett_and_price():
    # The adjusted estimates by hand: (150 + 1) / 1602 and (86 + 1) / 1602.
    found = paired_difference(150, 86, 1600)
    assert found.value == pytest.approx(-0.04)
    middle, spread = -64 / 1602, ((238 / 1602 - (64 / 1602) ** 2) / 1602) ** 0.5
    assert (found.low, found.high) == pytest.approx((middle - 1.959964 * spread, middle + 1.959964 * spread))
    assert not found.holds(0)
    # They differ on no example here, which does not prove that they never would.
    equal = paired_difference(0, 0, 100)
    assert equal.value == 0
    assert equal.low == pytest.approx(-equal.high)
    assert equal.high > 0.01


def test_the_interval_of_a_mean_is_the_normal_one():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    found = mean(values)
    assert found.value == 2.5
    assert found.high - found.value == pytest.approx(1.959964 * 1.290994 / 2, rel=1e-5)
    assert mean(values[:1]).high == np.inf


def test_agreement_beyond_chance_is_cohens_kappa():
    # 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: 0.7 agree, by chance 0.5.
    first = np.repeat([1, 1, 0, 0], [20, 5, 10, 15])
    second = np.repeat([1, 0, 1, 0], [20, 5, 10, 15])
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa(first, first) == pytest.approx(1.0)
    assert kappa(np.zeros(3, int), np.zeros(3, int)) == 1.0


def test_several_tests_are_corrected_as_holm_does():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4]) == [0.4]
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_over_seeds_without_variance_of_examples_it_is_welchs_test():
    # A training has the same value on every example, so that only the seeds make it uncertain.
    first, second = np.array([0.90, 0.91, 0.95]), np.array([0.80, 0.70, 0.75])
    found, p = over_seeds(np.tile(second[:, None], 50), np.tile(first[:, None], 50))
    expected = stats.ttest_ind(second, first, equal_var=False)
    assert found.value == pytest.approx(second.mean() - first.mean())
    assert p == pytest.approx(expected.pvalue)
    limits = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((limits.low, limits.high))


def test_over_seeds_that_agree_only_the_examples_make_it_uncertain():
    # Under every seed, 9 of 100 are right only in the second, 1 only in the first: Bonett and Price's variance.
    first, second = np.ones(100), np.ones(100)
    first[:9], second[9] = 0, 0
    found, p = over_seeds(np.tile(second, (3, 1)), np.tile(first, (3, 1)), (-1, 1))
    assert found.value == pytest.approx(0.08)
    half = (found.high - found.low) / 2
    expected = paired_difference(1, 9, 100)
    assert half == pytest.approx((expected.high - expected.low) / 2, rel=0.03)
    assert 0.01 < p < 0.03
    assert over_seeds(np.ones((3, 100)), np.ones((3, 100)), (-1, 1))[1] == 1.0


def draw(random: np.random.Generator, hardness: np.ndarray, skill: float) -> np.ndarray:
    """Draws which examples three trainings of a declaration get right, by hardness and each seed's luck."""
    luck = random.normal(skill, 0.3, (3, 1))
    return (luck + random.logistic(size=(3, len(hardness))) > hardness).astype(float)


def test_another_seed_is_rarely_better_and_a_worse_declaration_is_found():
    random = np.random.default_rng(1)
    alike, apart = [], []
    for _ in range(400):
        hardness = random.normal(-3.5, 2, 360)
        base = draw(random, hardness, 0)
        alike.append(over_seeds(draw(random, hardness, 0), base, (-1, 1))[1])
        apart.append(over_seeds(draw(random, hardness, -2), base, (-1, 1))[1])
    # 5 of 100 would be allowed; McNemar's test of one training each finds more than that.
    assert np.mean(np.array(alike) < 0.05) < 0.05
    assert np.mean(np.array(apart) < 0.025) > 0.9
