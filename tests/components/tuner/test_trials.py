"""What is stored of a trial."""

from __future__ import annotations

import math

import pytest

from tfx_estimator.components.tuner.trials import COMPLETED, FAILED, Result, Trial, best_of, forget

pytestmark = pytest.mark.unit


def test_a_result_comes_back_as_it_was_saved(tmp_path):
    assert Result.load(str(tmp_path)) is None
    result = Result(2, {"a": 0.1, "b": "x"}, COMPLETED, 0.9, {"accuracy": 0.9}, 60, 1.5, parent=1)
    result.save(str(tmp_path))
    assert Result.load(str(tmp_path)) == result
    forget(str(tmp_path))
    forget(str(tmp_path))
    assert Result.load(str(tmp_path)) is None
    # JSON has no such number; what comes back can be stored again.
    Result(1, {}, COMPLETED, 0.9, {"loss": math.nan}).save(str(tmp_path))
    again = Result.load(str(tmp_path))
    assert again is not None
    assert math.isnan(again.metrics["loss"])
    assert again.to_dict()["metrics"] == {"loss": None}


def test_a_result_is_of_the_same_values_up_to_the_last_bits():
    result = Result(1, {"a": 0.1, "b": "x"}, COMPLETED, 0.9)
    assert result.is_of(Trial(1, {"a": 0.1 + 1e-12, "b": "x"}))
    assert not result.is_of(Trial(1, {"a": 0.2, "b": "x"}))
    assert not result.is_of(Trial(1, {"a": 0.1, "b": "y"}))
    assert not result.is_of(Trial(1, {"a": 0.1}))
    assert not result.is_of(Trial(1, {"a": 0.1, "b": "x"}, parent=1))


def test_the_best_is_the_first_of_equal_ones():
    found = [Result(1, {}, FAILED), Result(2, {}, COMPLETED, 0.5), Result(3, {}, COMPLETED, 0.5)]
    for better in ("max", "min"):
        best = best_of(found, better)
        assert best is not None
        assert best.number == 2
    assert best_of(found[:1], "max") is None
