"""The Estimator path's use of the user's functions: a model_fn's params, and a complete trainer_fn."""

from __future__ import annotations

import copy
import json
import pickle
from types import SimpleNamespace

import pytest

from tfx_estimator.components.trainer.estimator import path
from tfx_estimator.components.trainer.estimator.recorded_params import RecordedParams
from tfx_estimator.pipeline.base.errors import UserCodeError

VALUES = {"units": 3, "optimizer": {"name": "adam", "momentum": 0.9}}


@pytest.fixture
def params():
    return RecordedParams(VALUES)


@pytest.mark.parametrize(
    ("use", "read"),
    [
        (lambda params: params["units"], {("units",)}),
        (lambda params: params.get("units"), {("units",)}),
        (lambda params: "units" in params, {("units",)}),
        (lambda params: params.pop("units"), {("units",)}),
        (lambda params: params["optimizer"], set()),
        (lambda params: params["optimizer"]["name"], {("optimizer", "name")}),
        (lambda params: copy.deepcopy(params)["optimizer"].get("name"), {("optimizer", "name")}),
        (lambda params: dict(**params["optimizer"]), {("optimizer",)}),
        (lambda params: {**params["optimizer"]}, {("optimizer",)}),
        (lambda params: dict(params), {()}),
        (json.dumps, {()}),
        (lambda params: list(params), {()}),
        (lambda params: params.copy(), {()}),
        (lambda params: (len(params), repr(params), bool(params), copy.deepcopy(params)), set()),
        (lambda params: params.get("absent"), {("absent",)}),
    ],
)
def test_the_params_that_are_read_are_recorded(params, use, read):
    use(params)
    assert {each for each in params.read if each != ("optimizer",) or ("optimizer",) in read} >= read
    assert bool(params.read) is bool(read)


def test_the_params_are_a_dict_of_the_same_values(params):
    assert params == VALUES
    assert json.loads(json.dumps(params)) == dict(params) == {**params} == params.copy() == VALUES
    assert type(params.copy()) is type(params.copy()["optimizer"]) is dict
    assert copy.deepcopy(params) == VALUES
    assert pickle.loads(pickle.dumps(params)) == VALUES
    assert params.setdefault("new", 1) == params["new"] == 1
    assert isinstance(params, dict)


def test_missing_results_of_a_trainer_fn_are_named():
    with pytest.raises(UserCodeError, match="trainer_fn returned no eval_spec, train_spec"):
        path._call_trainer_fn(lambda fn_args, schema: {"estimator": 1}, SimpleNamespace(schema_path=None))
