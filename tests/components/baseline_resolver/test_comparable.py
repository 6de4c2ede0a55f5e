"""What the Evaluator makes of a baseline that some other resolver found."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit


@pytest.fixture
def model(tmp_path):
    """Makes a model artifact with files."""
    from tfx.types import standard_artifacts

    from tfx_estimator.components.baseline_resolver import write_comparable

    def make(name: str, dataset: str = "mnist", number: int = 0):
        artifact = standard_artifacts.Model()
        artifact.uri = str(tmp_path / name)
        artifact.id = number
        (tmp_path / name / "Format-Serving").mkdir(parents=True, exist_ok=True)
        examples = standard_artifacts.Examples()
        examples.set_string_custom_property("dataset", dataset)
        write_comparable(artifact, [examples], ["probabilities"])
        return artifact

    return make


def baseline_of(baseline, candidate) -> tuple[list, str]:
    from tfx_estimator.components.evaluator.executor import _without_unfit_baseline

    inputs = {"model": [candidate], "examples": [], "baseline_model": [baseline]}
    found, dropped = _without_unfit_baseline(inputs)
    return found.get("baseline_model", []), dropped


def test_another_model_of_the_same_data_is_one(model):
    earlier = model("1", number=1)
    assert baseline_of(earlier, model("2", number=2)) == ([earlier], "")


def test_the_candidate_itself_is_none(model, caplog):
    # Found again in the cache, it has the address that it had; what knows no ids gives none.
    itself = ([], "the latest blessed model is the candidate itself")
    assert baseline_of(model("1", number=1), model("1", number=7)) == itself
    assert baseline_of(model("1", number=7), model("2", number=7)) == itself
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_model_of_other_data_and_one_that_is_gone_are_none_and_it_is_said_why(model, tmp_path, caplog):
    other = "the latest blessed model differs in data set"
    assert baseline_of(model("1", "cifar10", 1), model("2", number=2)) == ([], other)
    assert [record.levelname for record in caplog.records if other in record.getMessage()] == ["WARNING"]
    gone = model("3", number=3)
    (tmp_path / "3" / "Format-Serving").rmdir()
    found, why = baseline_of(gone, model("2", number=2))
    assert found == []
    assert why == f"the files of the latest blessed model are gone from {tmp_path / '3'}"


def test_each_difference_is_told(model):
    from tfx_estimator.components.baseline_resolver import write_comparable

    def made(name: str, outputs: list[str], **properties: str):
        from tfx.types import standard_artifacts

        artifact, examples = model(name), standard_artifacts.Examples()
        for key, value in {"dataset": "mnist", **properties}.items():
            examples.set_string_custom_property(key, value)
        write_comparable(artifact, [examples], outputs)
        return artifact

    candidate = made("2", ["raw"], image_shape="[28, 28, 1]", label_names='["a", "b"]')
    other = made("1", ["classes", "scores"], image_shape="[8, 8, 1]", label_names='["a", "c"]', test="train[90%:]")
    assert baseline_of(other, candidate)[1] == (
        "the latest blessed model differs in image shape, class names, test split, outputs"
    )


def test_a_model_of_somebody_elses_trainer_is_none(model):
    from tfx.types import standard_artifacts

    foreign = standard_artifacts.Model()
    foreign.uri = "/elsewhere"
    assert baseline_of(foreign, model("2", number=2))[1] == (
        "the latest blessed model does not say what it was trained on"
    )
    assert baseline_of(model("2", number=2), foreign) == ([], "the candidate does not say what it was trained on")


def test_without_a_baseline_nothing_changes(model):
    from tfx_estimator.components.evaluator.executor import _without_unfit_baseline

    inputs = {"model": [model("1")], "examples": []}
    assert _without_unfit_baseline(inputs) == (inputs, "")
