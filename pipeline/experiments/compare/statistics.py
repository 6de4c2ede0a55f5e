"""What can be said of two classifiers that answered the same examples: intervals, McNemar's test, agreement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from sklearn.metrics import cohen_kappa_score

CONFIDENCE = 0.95
# From so many examples on which only one of the two is right, chi-square is as good as the exact test.
_ENOUGH = 25


@dataclass(frozen=True)
class Interval:
    """A value that was estimated, with the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Tells whether a value lies in the interval."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class McNemar:
    """McNemar's test of whether two classifiers are right equally often."""

    only_first: int  # examples that the first alone got right
    only_second: int
    p: float  # probability of a difference as large as this one, or larger, if there is none
    statistic: float | None = None  # the chi-square with continuity correction; None where the binomial test is exact

    @property
    def exact(self) -> bool:
        """Is it the binomial test."""
        return self.statistic is None


def wilson(right: int, count: int) -> Interval:
    """Returns a proportion of at least one example with its score interval, which keeps to 0 and 1.

    Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference, 1927.
    """
    found = stats.binomtest(right, count).proportion_ci(CONFIDENCE, "wilson")
    return Interval(right / count, float(found.low), float(found.high))


def mcnemar(only_first: int, only_second: int) -> McNemar:
    """Tests whether two classifiers are right equally often on the same examples.

    Source: McNemar, Note on the sampling error of the difference between correlated proportions or percentages, 1947;
    the correction: Edwards, 1948. Exact with fewer than 25 examples that one alone got right, else the chi-square.
    """
    discordant = only_first + only_second
    if discordant < _ENOUGH:
        p = stats.binomtest(only_first, discordant).pvalue if discordant else 1.0
        return McNemar(only_first, only_second, float(p))
    statistic = max(abs(only_first - only_second) - 1, 0) ** 2 / discordant
    return McNemar(only_first, only_second, float(stats.chi2.sf(statistic, 1)), statistic)


def paired_difference(only_first: int, only_second: int, count: int) -> Interval:
    """Returns by how much the second is right more often than the first, of paired examples.

    Source: Bonett and Price, Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on Paired
    Data, 2012.
    """
    first, second = (only_first + 1) / (count + 2), (only_second + 1) / (count + 2)
    half = _quantile() * math.sqrt((first + second - (second - first) ** 2) / (count + 2))
    middle = second - first
    return Interval((only_second - only_first) / count, max(middle - half, -1.0), min(middle + half, 1.0))


def mean(values: np.ndarray) -> Interval:
    """Returns the mean, with its interval by the normal distribution.

    Args:
        values: Of each example; float64 [examples]. Differences of pairs make it a paired comparison.
    """
    value = float(values.mean())
    half = _quantile() * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Interval(value, value - half, value + half)


def kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Cohen's kappa: agreement beyond what chance would give; 1 is all, 0 none.

    Source: Cohen, A Coefficient of Agreement for Nominal Scales, 1960.

    Args:
        first: Predicted classes; int64 [examples], as the second.
    """
    # Of one class alone it would be 0 / 0.
    return 1.0 if np.array_equal(first, second) else float(cohen_kappa_score(first, second))


def holm(ps: Sequence[float]) -> list[float]:
    """Corrects p-values for their number: each may be compared with the level as if it were the only one.

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
    """
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda index: ps[index])):
        highest = max(highest, min((len(ps) - rank) * ps[index], 1.0))
        corrected[index] = highest
    return corrected


def _quantile() -> float:
    return float(stats.norm.ppf((1 + CONFIDENCE) / 2))
