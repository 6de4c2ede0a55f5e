"""The baseline is the latest blessed model other than the candidate."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit


@pytest.fixture
def resolve(tmp_path):
    def run(models: dict[int, bool], candidate: int, **others) -> dict[str, list[int]]:
        return _resolve(tmp_path, models, candidate, **others)

    return run


def _resolve(tmp_path, models, candidate, data=None, outputs=None, gone=(), cut=()) -> dict[str, list[int]]:
    """Resolves among models, id to blessed; returns the ids by channel.

    `data` and `outputs` give some models another data set, or other outputs; the files of those in `gone` are gone, and
    those in `cut` are not whole.
    """
    from tfx.types import standard_artifacts

    from tfx_estimator.components.baseline_resolver import BaselineStrategy, write_comparable
    from tfx_estimator.components.inventory import note

    def model(number: int):
        artifact = standard_artifacts.Model()
        artifact.id = number
        artifact.uri = str(tmp_path / str(number))
        if number not in gone:
            (tmp_path / str(number) / "Format-Serving").mkdir(parents=True, exist_ok=True)
            file = tmp_path / str(number) / "Format-Serving" / "saved_model.pb"
            file.write_text("a model")
            note(artifact.mlmd_artifact, artifact.type_name)
            file.write_text("a" if number in cut else "a model")
        examples = standard_artifacts.Examples()
        for name, value in {"dataset": "mnist", "image_shape": "[28,28,1]", **(data or {}).get(number, {})}.items():
            examples.set_string_custom_property(name, value)
        write_comparable(artifact, [examples], (outputs or {}).get(number, ["probabilities"]))
        return artifact

    def blessing(number: int, blessed: bool):
        artifact = standard_artifacts.ModelBlessing()
        artifact.id = 100 + number
        artifact.set_int_custom_property("blessed", int(blessed))
        artifact.set_int_custom_property("current_model_id", number)
        return artifact

    inputs = {
        "model": [model(number) for number in models],
        "model_blessing": [blessing(number, blessed) for number, blessed in models.items()],
        "candidate": [model(candidate)],
    }
    resolved = BaselineStrategy().resolve_artifacts(None, inputs)
    assert resolved is not None
    return {key: [artifact.id for artifact in artifacts] for key, artifacts in resolved.items()}


def test_the_latest_blessed_model_is_found(resolve):
    assert resolve({1: True, 2: True, 3: False}, candidate=4) == {
        "model": [2],
        "model_blessing": [102],
        "candidate": [4],
    }


def test_the_candidate_is_not_compared_with_itself(resolve):
    assert resolve({1: True, 2: True}, candidate=2)["model"] == [1]


def test_a_model_of_which_a_part_is_gone_is_passed_over(resolve):
    assert resolve({1: True, 2: True, 3: True}, candidate=4, cut=(2, 3))["model"] == [1]
    assert resolve({1: True}, candidate=4, cut=(1,))["model"] == []


def test_there_is_no_baseline_before_the_first_blessing(resolve):
    for models in ({}, {1: False}, {1: True}):
        assert resolve(models, candidate=1) == {"model": [], "model_blessing": [], "candidate": [1]}


@pytest.mark.parametrize(
    "difference",
    [
        {"data": {2: {"dataset": "fashion_mnist"}}},
        {"data": {2: {"image_shape": "[32,32,1]"}}},
        {"data": {2: {"label_names": '["a","b"]'}}},
        {"data": {number: {"label_names": names} for number, names in enumerate(["[2,10]", "[10,2]", "[2,10]"], 1)}},
        # It may have been trained on what the candidate is tested on.
        {"data": {2: {"test": "train[90%:]"}}},
        {"outputs": {2: ["scores"]}},
        {"gone": (2,)},
    ],
)
def test_a_model_of_another_kind_is_passed_over(resolve, difference):
    assert resolve({1: True, 2: True}, candidate=3, **difference)["model"] == [1]
