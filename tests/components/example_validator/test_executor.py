"""The anomalies that ExampleValidator finds, and the data that it accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.types import artifact_utils
from tfx_bsl.coders import example_coder

from tests.artifacts import artifact, example
from tests.folders import write_files
from tests.refusals import refused
from tfx_estimator import testing
from tfx_estimator.components.example_validator.executor import Executor
from tfx_estimator.components.image_schema_gen.executor import image_schema
from tfx_estimator.pipeline.base.errors import DataValidationError

_IMAGE = bytes(784)


def _example(image=_IMAGE, label=1) -> bytes:
    return example(**{name: each for name, each in (("image", image), ("label", label)) if each is not None})


_GOOD = [_example(label=index % 10) for index in range(99)]


@pytest.fixture
def validate(tmp_path):
    """Validates examples of two splits; returns each split's written anomalies."""

    def run(train, evaluation=_GOOD, num_classes=10):
        schema = image_schema(num_classes)
        options = tfdv.StatsOptions(schema=schema)
        statistics, anomalies = (artifact(f"Example{kind}", tmp_path / kind) for kind in ("Statistics", "Anomalies"))
        statistics.split_names = artifact_utils.encode_split_names(["train", "eval"])
        decoder = example_coder.ExamplesToRecordBatchDecoder()
        for split, records in (("train", train), ("eval", evaluation)):
            result = stats_impl.generate_statistics_in_memory(decoder.DecodeBatch(records), options)
            write_files(Path(statistics.uri), {f"Split-{split}/FeatureStats.pb": result.SerializeToString()})
        inputs = {"statistics": [statistics], "schema": [testing.artifact("Schema", schema)]}
        Executor().Do(inputs, {"anomalies": [anomalies]}, {"image_bytes": 784, "exclude_splits": "[]"})
        return anomalies

    return run


def _written(folder, split) -> anomalies_pb2.Anomalies:
    return anomalies_pb2.Anomalies.FromString((folder / "Anomalies" / f"Split-{split}" / "SchemaDiff.pb").read_bytes())


def test_clean_examples_have_no_anomaly(validate, tmp_path):
    anomalies = validate(_GOOD)
    assert anomalies.get_json_value_custom_property("blessed") == {"train": 1, "eval": 1}
    for split in ("train", "eval"):
        assert not _written(tmp_path, split).anomaly_info


@pytest.mark.parametrize(
    ("bad", "texts"),
    [
        ({"label": 10}, ["feature 'label': Out-of-range values: Unexpectedly large value: 10."]),
        ({"label": None}, ["feature 'label': Column dropped", "(missing in 1 of 100 examples)"]),
        ({"label": [1, 2]}, ["feature 'label': Feature shape dropped"]),
        ({"image": None}, ["feature 'image': Column dropped", "(missing in 1 of 100 examples)"]),
        ({"image": bytes(783)}, ["Wrong image size: Images of 783 to 784 bytes, expected exactly 784."]),
        ({"image": [_IMAGE, _IMAGE]}, ["feature 'image': Feature shape dropped"]),
    ],
)
def test_one_bad_example_among_a_hundred_is_found(validate, tmp_path, bad, texts):
    with refused(DataValidationError, *texts, "split 'eval'") as caught:
        validate(_GOOD, [*_GOOD, _example(**bad)])
    assert "split 'train'" not in caught.value.what
    assert list(_written(tmp_path, "eval").anomaly_info) == list(bad)


def test_all_anomalies_are_listed_at_once(validate):
    both = "split 'train', feature 'label'", "split 'eval', feature 'image'"
    with refused(DataValidationError, "the examples have 2 anomalies", *both):
        validate([*_GOOD, _example(label=77)], [*_GOOD, _example(image=bytes(5))])


def test_a_rare_wrong_label_among_many_classes_is_found(validate):
    # Statistics of categories would keep the most frequent values only, and miss it.
    examples = [_example(label=index % 2000) for index in range(6000)]
    with pytest.raises(DataValidationError, match="Unexpectedly large value: 2000"):
        validate([*examples, _example(label=2000)], examples, num_classes=2000)
