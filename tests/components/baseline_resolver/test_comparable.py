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


def baseline_of(baseline, candidate) -> list:
    from tfx_estimator.components.evaluator.executor import _without_unfit_baseline

    inputs = {"model": [candidate], "examples": [], "baseline_model": [baseline]}
    return _without_unfit_baseline(inputs).get("baseline_model", [])


def test_another_model_of_the_same_data_is_one(model):
    earlier = model("1", number=1)
    assert baseline_of(earlier, model("2", number=2)) == [earlier]


def test_the_candidate_itself_is_none(model):
    # Found again in the cache, it has the address that it had; what knows no ids gives none.
    assert baseline_of(model("1", number=1), model("1", number=7)) == []
    assert baseline_of(model("1", number=7), model("2", number=7)) == []


def test_a_model_of_other_data_and_one_that_is_gone_are_none(model, tmp_path):
    assert baseline_of(model("1", "cifar10", 1), model("2", number=2)) == []
    gone = model("3", number=3)
    (tmp_path / "3" / "Format-Serving").rmdir()
    assert baseline_of(gone, model("2", number=2)) == []


def test_without_a_baseline_nothing_changes(model):
    from tfx_estimator.components.evaluator.executor import _without_unfit_baseline

    inputs = {"model": [model("1")], "examples": []}
    assert _without_unfit_baseline(inputs) is inputs
