"""The baseline is the latest blessed model except the candidate; baselines found by others are checked."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest

from tests.artifacts import artifact
from tests.folders import write_files
from tfx_estimator.components.baseline_resolver import BaselineStrategy, write_comparable
from tfx_estimator.components.evaluator.executor import _without_unfit_baseline
from tfx_estimator.components.inventory import note


@pytest.fixture
def made(tmp_path):
    """Makes a model artifact with files, trained on examples with some properties."""

    def make(name: object, number: int = 0, outputs: Sequence[str] = ("probabilities",), **properties: str):
        model = artifact("Model", write_files(tmp_path / str(name), {"Format-Serving/saved_model.pb": "a model"}))
        model.id = number
        note(model.mlmd_artifact, model.type_name)
        write_comparable(model, [artifact("Examples", **{"dataset": "mnist", **properties})], outputs)
        return model

    return make


@pytest.fixture
def resolve(made, tmp_path):
    """Resolves among models, id to blessed; returns the ids by channel.

    `data` and `outputs` give some models another data set, or other outputs; the files of those in `gone` are gone, and
    those in `cut` are not whole.
    """

    def run(models, candidate, data=None, outputs=None, gone=(), cut=()) -> dict[str, list[int]]:
        data, outputs = data or {}, outputs or {}
        found = {
            number: made(number, number, outputs.get(number, ["probabilities"]), **data.get(number, {}))
            for number in (*models, candidate)
        }
        for number in gone:
            shutil.rmtree(tmp_path / str(number))
        for number in cut:
            (tmp_path / str(number) / "Format-Serving" / "saved_model.pb").write_text("a")
        inputs = {
            "model": [found[number] for number in models],
            "model_blessing": [_blessing(number, blessed) for number, blessed in models.items()],
            "candidate": [found[candidate]],
        }
        resolved = BaselineStrategy().resolve_artifacts(None, inputs)
        return {key: [artifact.id for artifact in artifacts] for key, artifacts in resolved.items()}

    return run


def _blessing(number: int, blessed: bool):
    made = artifact("ModelBlessing", blessed=int(blessed), current_model_id=number)
    made.id = 100 + number
    return made


def test_the_latest_complete_blessed_model_is_found(resolve):
    found = resolve({1: True, 2: True, 3: False}, candidate=4)
    assert found == {"model": [2], "model_blessing": [102], "candidate": [4]}
    # The candidate is not compared with itself.
    assert resolve({1: True, 2: True}, candidate=2)["model"] == [1]
    assert resolve({1: True, 2: True, 3: True}, candidate=4, cut=(2, 3))["model"] == [1]
    assert resolve({1: True}, candidate=4, cut=(1,))["model"] == []


@pytest.mark.parametrize(
    "difference",
    [
        {"data": {2: {"dataset": "fashion_mnist"}}},
        {"data": {2: {"image_shape": "[32,32,1]"}}},
        {"data": {2: {"label_names": '["a","b"]'}}},
        {"data": {number: {"label_names": names} for number, names in enumerate(["[2,10]", "[10,2]", "[2,10]"], 1)}},
        # It may have been trained on the candidate's test data.
        {"data": {2: {"test": "train[90%:]"}}},
        {"outputs": {2: ["scores"]}},
        {"gone": (2,)},
    ],
)
def test_an_incomparable_model_is_skipped(resolve, difference):
    assert resolve({1: True, 2: True}, candidate=3, **difference)["model"] == [1]


def baseline_of(baseline, candidate) -> tuple[list, str]:
    inputs = {"model": [candidate], "examples": [], "baseline_model": [baseline]}
    found, dropped = _without_unfit_baseline(inputs)
    return found.get("baseline_model", []), dropped


def test_another_model_of_the_same_data_is_a_baseline(made):
    earlier = made("1", number=1)
    assert baseline_of(earlier, made("2", number=2)) == ([earlier], "")


def test_the_candidate_itself_is_no_baseline(made, caplog):
    # A cached candidate has its former URI; a service without ids gives none.
    itself = ([], "the latest blessed model is the candidate itself")
    assert baseline_of(made("1", number=1), made("1", number=7)) == itself
    assert baseline_of(made("1", number=7), made("2", number=7)) == itself
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_model_of_other_data_and_a_missing_one_are_refused_with_the_reason(made, tmp_path, caplog):
    other = "the latest blessed model differs in data set"
    assert baseline_of(made("1", number=1, dataset="cifar10"), made("2", number=2)) == ([], other)
    assert [record.levelname for record in caplog.records if other in record.getMessage()] == ["WARNING"]
    gone = made("3", number=3)
    shutil.rmtree(tmp_path / "3" / "Format-Serving")
    found, why = baseline_of(gone, made("2", number=2))
    assert found == []
    assert why == f"the files of the latest blessed model are gone from {tmp_path / '3'}"


def test_each_difference_is_reported(made):
    candidate = made("2", outputs=["raw"], image_shape="[28, 28, 1]", label_names='["a", "b"]')
    other = made(
        "1", outputs=["classes", "scores"], image_shape="[8, 8, 1]", label_names='["a", "c"]', test="train[90%:]"
    )
    assert baseline_of(other, candidate)[1] == (
        "the latest blessed model differs in image shape, class names, test split, outputs"
    )


def test_a_model_of_another_trainer_is_no_baseline(made):
    foreign = artifact("Model", "/elsewhere")
    assert baseline_of(foreign, made("2", number=2))[1] == (
        "the latest blessed model has no record of its training data"
    )
    assert baseline_of(made("2", number=2), foreign) == ([], "the candidate has no record of its training data")
