"""Statistics of two classifiers on the same examples: intervals, McNemar's test, agreement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from sklearn.metrics import cohen_kappa_score

CONFIDENCE = 0.95
# Number of examples on which only one of the two is right, from which chi-square is as good as the exact test.
_ENOUGH = 25


@dataclass(frozen=True)
class Interval:
    """An estimated value with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Returns whether a value is in the interval."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class McNemar:
    """McNemar's test of whether two classifiers are equally accurate."""

    only_first: int  # examples that only the first got right
    only_second: int
    p: float
    statistic: float | None = None  # chi-square with continuity correction; None for the exact binomial test

    @property
    def exact(self) -> bool:
        """Whether this is the exact binomial test."""
        return self.statistic is None


def wilson(right: int, count: int) -> Interval:
    """Returns a proportion of at least one example with its score interval, which stays within 0 and 1.

    Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference, 1927.
    """
    found = stats.binomtest(right, count).proportion_ci(CONFIDENCE, "wilson")
    return Interval(right / count, float(found.low), float(found.high))


def mcnemar(only_first: int, only_second: int) -> McNemar:
    """Tests whether two classifiers are equally accurate on the same examples.

    Source: McNemar, Note on the sampling error of the difference between correlated proportions or percentages, 1947;
    the correction: Edwards, 1948. Exact with fewer than 25 examples that only one got right, else the chi-square.
    """
    discordant = only_first + only_second
    if discordant < _ENOUGH:
        p = stats.binomtest(only_first, discordant).pvalue if discordant else 1.0
        return McNemar(only_first, only_second, float(p))
    statistic = max(abs(only_first - only_second) - 1, 0) ** 2 / discordant
    return McNemar(only_first, only_second, float(stats.chi2.sf(statistic, 1)), statistic)


def paired_difference(only_first: int, only_second: int, count: int) -> Interval:
    """Returns the second's accuracy minus the first's on paired examples.

    Source: Bonett and Price, Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on Paired
    Data, 2012.
    """
    first, second = (only_first + 1) / (count + 2), (only_second + 1) / (count + 2)
    half = _quantile() * math.sqrt((first + second - (second - first) ** 2) / (count + 2))
    middle = second - first
    return Interval((only_second - only_first) / count, max(middle - half, -1.0), min(middle + half, 1.0))


def mean(values: np.ndarray) -> Interval:
    """Returns the mean with its interval by the normal distribution.

    Args:
        values: float64 [examples]. Differences of pairs make it a paired comparison.
    """
    value = float(values.mean())
    half = _quantile() * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Interval(value, value - half, value + half)


def normal_p(found: Interval) -> float:
    """Returns the p of the test whether a mean is 0, by its interval of the normal distribution."""
    half = found.high - found.value
    if not half:
        return 0.0 if found.value else 1.0
    return float(2 * stats.norm.sf(abs(found.value) * _quantile() / half))


def over_seeds(
    values: np.ndarray, base: np.ndarray | None = None, added: Sequence[float] = ()
) -> tuple[Interval, float]:
    """Returns the mean over trainings and examples, or its difference from the base's, and the t-test's p.

    The choice of trainings and that of examples both add variance: the variances are added, with degrees of freedom
    after Welch and Satterthwaite. Their interaction is counted twice, so the test is conservative. Trainings are not
    paired by seed: the same seed relates two declarations little, and two degrees of freedom instead of four would
    cost much power.

    Source: Welch, The generalization of Student's problem when several different population variances are involved,
    1947; Satterthwaite, An Approximate Distribution of Estimates of Variance Components, 1946.

    Args:
        values: float64 [trainings, examples], of at least two trainings.
        base: The same for the base.
        added: Made-up examples for the variance over examples, which few right or wrong answers underestimate.
    """
    of_examples, parts = values.mean(axis=0), [_variance_of_mean(values.mean(axis=1))]
    if base is not None:
        of_examples = of_examples - base.mean(axis=0)
        parts.append(_variance_of_mean(base.mean(axis=1)))
    value = float(of_examples.mean())
    if len(of_examples) < 2:
        return Interval(value, -math.inf, math.inf), 1.0
    parts.append(_variance_of_mean(np.append(of_examples, added)))
    variance = sum(part for part, _ in parts)
    if not variance:
        return Interval(value, value, value), 0.0 if value else 1.0
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    deviation = math.sqrt(variance)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * deviation
    return Interval(value, value - half, value + half), float(2 * stats.t.sf(abs(value) / deviation, freedom))


def _variance_of_mean(values: np.ndarray) -> tuple[float, int]:
    """Returns the variance of the mean, and its degrees of freedom."""
    return float(values.var(ddof=1)) / len(values), len(values) - 1


def kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Cohen's kappa: agreement beyond chance; 1 is full agreement, 0 none.

    Source: Cohen, A Coefficient of Agreement for Nominal Scales, 1960.

    Args:
        first: Predicted classes; int64 [examples], like the second.
    """
    # With only one class it would be 0 / 0.
    return 1.0 if np.array_equal(first, second) else float(cohen_kappa_score(first, second))


def holm(ps: Sequence[float]) -> list[float]:
    """Corrects p-values for multiple tests: each may be compared with the level as if it were the only one.

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
    """
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda index: ps[index])):
        highest = max(highest, min((len(ps) - rank) * ps[index], 1.0))
        corrected[index] = highest
    return corrected


def _quantile() -> float:
    return float(stats.norm.ppf((1 + CONFIDENCE) / 2))
