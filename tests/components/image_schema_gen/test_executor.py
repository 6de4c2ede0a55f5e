"""The schema that ImageSchemaGen derives."""

from __future__ import annotations

import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils

from tests.artifacts import artifact
from tfx_estimator.components.image_schema_gen.executor import Executor, image_schema
from tfx_estimator.components.tfds_example_gen.properties import write_properties
from tfx_estimator.data.sources import SourceInfo
from tfx_estimator.pipeline.config.data import Splits


def test_the_labels_are_those_of_the_data_set(tmp_path):
    examples = artifact("Examples")
    info = SourceInfo("tiny", "1.0.0", (4, 6, 3), ("cat", "dog", "fish"))
    write_properties(examples, info, "fingerprint", {"train": 1}, Splits())
    Executor().Do({"examples": [examples]}, {"schema": [artifact("Schema", tmp_path)]}, {})
    schema = text_format.Parse((tmp_path / "schema.pbtxt").read_bytes(), schema_pb2.Schema())
    features = {feature.name: feature for feature in schema.feature}
    assert list(features) == ["image", "label"]
    assert (features["image"].type, features["label"].type) == (schema_pb2.BYTES, schema_pb2.INT)
    assert (features["label"].int_domain.min, features["label"].int_domain.max) == (0, 2)
    assert all(feature.presence.min_fraction == 1 for feature in features.values())


def test_transform_parses_both_features_as_one_dense_value_per_example():
    spec = schema_utils.schema_as_feature_spec(image_schema(10)).feature_spec
    assert spec == {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
