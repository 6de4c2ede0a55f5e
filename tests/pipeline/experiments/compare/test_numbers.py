"""Regressions, compared by their errors on the same examples, with values computed by hand and by scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tfx_estimator.pipeline.commands.compare import require_equal
from tfx_estimator.pipeline.experiments.compare.numbers import (
    NumberComparison,
    NumberResult,
    pair_up_numbers,
    score_numbers,
)
from tfx_estimator.pipeline.experiments.compare.page import pair_rows, result_rows

LABELS = np.array([1.0, 2.0, 3.0, 4.0])


def _compare(predicted: dict[str, list[list[float]]]) -> NumberComparison:
    numbers = [np.array(each) for each in predicted.values()]
    seeds = [{"seed": seed, "rmse": 1.0} for seed in range(len(numbers[0]))] if len(numbers[0]) > 1 else []
    results = [
        NumberResult(name, "own", *score_numbers(each - LABELS), "predictions", 1, 1, replicates=seeds)
        for name, each in zip(predicted, numbers)
    ]
    return NumberComparison(results, pair_up_numbers(list(predicted), LABELS, numbers), 4, "eval", {}, {}, [])


def test_errors_and_their_paired_differences_in_the_unit_of_the_label():
    found = _compare({"a": [[2.0, 2.0, 3.0, 2.0]], "b": [[1.0, 2.5, 3.0, 4.0]]})
    assert (found.base.mae.value, found.base.mse.value) == (0.75, 1.25)
    assert found.base.rmse.value == pytest.approx(1.25**0.5)
    (pair,) = found.pairs
    # Squared errors are 1, 0, 0, 4 and 0, 0.25, 0, 0.
    differences = np.array([-1, 0.25, 0, -4])
    assert pair.mse.value == differences.mean() == -1.1875
    z = stats.norm.ppf(0.975) * differences.std(ddof=1) / 2
    assert (pair.mse.low, pair.mse.high) == pytest.approx((-1.1875 - z, -1.1875 + z))
    assert pair.p == pytest.approx(2 * stats.norm.sf(1.1875 / (differences.std(ddof=1) / 2)))
    assert (pair.mae.value, pair.mean_apart, pair.most_apart, pair.nearer) == (-0.625, 0.875, 2.0, 0.625)
    assert "do not differ significantly" in found.conclusions()[0]
    assert [title for title, _ in result_rows(found)][:2] == ["RMSE", "mean absolute error"]
    assert dict(pair_rows(found))["predictions apart"] == ["0.875, at most 2"]
    told = found.to_dict()
    assert told["candidates"]["b"]["rmse"]["value"] == 0.25
    assert told["spread_percent"] == pytest.approx(100 * (1.25**0.5 - 0.25) / 1.25**0.5)
    with pytest.raises(Exception, match=r"root mean squared errors are 77.64 % apart"):
        require_equal(found.spread, 50, found.apart)


def test_equal_predictions_and_several_seeds():
    same = _compare({"a": [[1.0, 2.0, 3.5, 4.0]], "b": [[1.0, 2.0, 3.5, 4.0]]})
    assert (same.pairs[0].p, same.pairs[0].most_apart, same.spread) == (1.0, 0.0, 0.0)
    assert same.conclusions() == ["b predicts the same number as a for every example."]
    two = _compare(
        {"a": [[2.0, 3.0, 4.0, 5.5], [2.0, 3.0, 4.0, 5.0]], "b": [[1.0, 2.0, 3.0, 4.5], [1.1, 2.1, 3.0, 4.0]]}
    )
    (pair,) = two.pairs
    assert pair.mse.high < 0
    assert pair.p < 0.05
    assert two.conclusions()[0].startswith("The errors of b are smaller than those of a")
    assert len(two.conclusions()) == 1
