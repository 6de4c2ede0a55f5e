"""TfdsExampleGen in a pipeline: channels, cache key."""

from __future__ import annotations

import pytest
from tfx.types import standard_artifacts

from tfx_estimator.components.tfds_example_gen import TfdsExampleGen
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.errors import DataError, DataNotFoundError

pytestmark = pytest.mark.unit


def _key(**changes):
    component = TfdsExampleGen(DataSection(**changes))
    return component.exec_properties["data"], component.exec_properties["fingerprint"]


def test_it_has_one_output(real_data_dir):
    component = TfdsExampleGen(DataSection(dataset="mnist", data_dir=real_data_dir))
    assert component.id == "TfdsExampleGen"
    assert list(component.inputs) == []
    assert component.outputs["examples"].type is standard_artifacts.Examples


def test_the_cache_key_follows_the_declaration_and_the_data(real_data_dir):
    first = _key(dataset="mnist", data_dir=real_data_dir)
    assert _key(dataset="mnist", data_dir=real_data_dir) == first
    data, fingerprint = _key(dataset="mnist", data_dir=real_data_dir, shards=4)
    assert data != first[0]
    assert fingerprint == first[1]
    _, fingerprint = _key(dataset="mnist", data_dir=real_data_dir, splits={"train": "train[:90%]"})
    assert fingerprint != first[1]


def test_evaluation_on_training_examples_is_refused_before_the_pipeline_starts(real_data_dir):
    with pytest.raises(DataError, match=r"both hold train\[54000:60000\]"):
        _key(dataset="mnist", data_dir=real_data_dir, splits={"train": "train", "eval": "train[90%:]"})


def test_a_fingerprint_may_be_given():
    component = TfdsExampleGen(DataSection(dataset="/not/on/this/machine"), fingerprint="known elsewhere")
    assert component.exec_properties["fingerprint"] == "known elsewhere"


def test_a_data_set_that_is_none_is_refused_before_the_pipeline_starts(tmp_path):
    with pytest.raises(DataNotFoundError, match="no folder"):
        TfdsExampleGen(DataSection(dataset=str(tmp_path / "nowhere")))
