"""Compares regressions by the numbers that they predict of the same examples, in the label's unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

import numpy as np

from tfx_estimator.pipeline.experiments.compare.results import Comparison, show_p
from tfx_estimator.pipeline.experiments.compare.statistics import Interval, holm, mean, normal_p, over_seeds
from tfx_estimator.pipeline.report.page import show_number, show_percent

_LEVEL = 0.05


@dataclass(frozen=True)
class NumberResult:
    """Results of one candidate; of several seeds, over these and the examples."""

    name: str
    source: str  # a preset, a file or a folder
    mae: Interval  # mean absolute error
    mse: Interval  # mean squared error
    output: str  # name of the served output
    model_bytes: int  # of the SavedModel's files
    parameters: int  # numbers in its variables
    training: Mapping[str, float] = field(default_factory=dict)  # as in a `Result`
    cached: bool = False  # whether it was trained before
    replicates: Sequence[Mapping[str, Any]] = ()  # of each seed: `seed`, `rmse`
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> Interval:
        """The mean squared error."""
        return self.mse

    @property
    def rmse(self) -> Interval:
        """The root of the mean squared error."""
        return Interval(*(math.sqrt(max(each, 0)) for each in (self.mse.value, self.mse.low, self.mse.high)))


@dataclass(frozen=True)
class NumberPair:
    """Comparison of a candidate with the base, on the same examples."""

    name: str
    mae: Interval  # difference from the base's
    mse: Interval  # likewise
    p: float  # of the test of squared errors, with Holm's correction for the number of tests
    mean_apart: float  # mean distance of the two predictions
    most_apart: float
    nearer: float  # share of the examples whose label is nearer to this one's prediction; equal ones count half
    classes: Sequence[Any] = ()


@dataclass(frozen=True)
class NumberComparison(Comparison):
    """Results of regressions."""

    results: Sequence[Any]
    pairs: Sequence[Any]

    @property
    def is_regression(self) -> bool:
        """See `Comparison`."""
        return True

    @property
    def spread(self) -> float:
        """Difference of the highest and the lowest RMSE, in percent of the base's."""
        found = [each.rmse.value for each in self.results]
        return 100 * (max(found) - min(found)) / found[0] if max(found) > min(found) else 0.0

    @property
    def apart(self) -> str:
        """See `Comparison`."""
        return f"the root mean squared errors are {self.spread:.2f} % apart"

    def differs(self, pair: Any) -> bool:
        """See `Comparison`."""
        return pair.most_apart > 0

    def conclude(self, pair: Any) -> str:
        """See `Comparison`."""
        change = pair.mse
        if not pair.most_apart:
            return f"{pair.name} predicts the same number as {self.base.name} for every example."
        corrected = f", corrected for {len(self.pairs)} tests" if len(self.pairs) > 1 else ""
        values = (
            f"mean squared error {change.value:+.4g} ({change.low:+.4g} to {change.high:+.4g}), p = "
            f"{show_p(pair.p)}{corrected}; predictions {show_number(pair.mean_apart)} apart on average, at most "
            f"{show_number(pair.most_apart)}."
        )
        if pair.p >= _LEVEL:
            return f"The errors of {pair.name} do not differ significantly from those of {self.base.name}: {values}"
        return f"The errors of {pair.name} are {'smaller' if change.value < 0 else 'larger'} than those of " + (
            f"{self.base.name}: {values}"
        )

    def candidate(self, result: Any) -> dict[str, Any]:
        """See `Comparison`."""
        return {**asdict(result), "rmse": asdict(result.rmse)}


def score_numbers(errors: np.ndarray) -> tuple[Interval, Interval]:
    """Returns the mean absolute and the mean squared error; `errors`: float64 [trainings, examples]."""
    return _over(np.abs(errors)), _over(errors**2)


def pair_up_numbers(names: Sequence[str], labels: np.ndarray, predicted: Sequence[np.ndarray]) -> list[NumberPair]:
    """Compares each other candidate with the first.

    Args:
        labels: float64 [examples].
        predicted: By each candidate, float64 [trainings, examples].
    """
    errors = [each - labels for each in predicted]
    absolute = [np.abs(each) for each in errors]
    tested = [_tested(each**2, errors[0] ** 2) for each in errors[1:]]
    corrected = holm([p for _, p in tested])
    pairs = []
    for index, (name, (squares, _), p) in enumerate(zip(names[1:], tested, corrected), 1):
        # Each training with each.
        apart = np.abs(predicted[index][:, np.newaxis] - predicted[0][np.newaxis])
        nearer = np.sign(absolute[0][np.newaxis] - absolute[index][:, np.newaxis])
        distances = float(apart.mean()), float(apart.max())
        difference, _ = _tested(absolute[index], absolute[0])
        pairs.append(NumberPair(name, difference, squares, p, *distances, float((1 + nearer).mean()) / 2))
    return pairs


def _over(values: np.ndarray) -> Interval:
    return mean(values[0]) if len(values) == 1 else over_seeds(values)[0]


def _tested(values: np.ndarray, base: np.ndarray) -> tuple[Interval, float]:
    """Returns the mean paired difference, and the p of the test whether it is 0."""
    if len(values) > 1:
        return over_seeds(values, base)
    found = mean(values[0] - base[0])
    return found, normal_p(found)


def number_facts(results: Sequence[Any]) -> dict[str, Any]:
    """Returns what a page shows of a result, by title."""

    def interval(name: str) -> Any:
        return lambda each: _show(getattr(each, name), "{:.4g}")

    def seed(number: int) -> Any:
        def show(each: Any) -> Optional[str]:
            one = each.replicates[number]
            return f"{show_number(one['rmse'])} (seed {one['seed']})"

        return show

    count = max(len(each.replicates) for each in results)
    return {
        "RMSE": interval("rmse"),
        "mean absolute error": interval("mae"),
        **{f"RMSE of training {number + 1}": seed(number) for number in range(count)},
    }


def pair_facts() -> dict[str, Any]:
    """Returns what a page shows of a pair, by title."""
    return {
        "mean squared error, higher by": lambda each: _show(each.mse, "{:+.4g}"),
        "mean absolute error, higher by": lambda each: _show(each.mae, "{:+.4g}"),
        "p of squared errors": lambda each: show_p(each.p),
        "predictions apart": lambda each: f"{show_number(each.mean_apart)}, at most {show_number(each.most_apart)}",
        "nearer to the label": lambda each: show_percent(each.nearer, 1),
    }


def _show(found: Interval, form: str) -> str:
    value, low, high = (form.format(each) for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"
