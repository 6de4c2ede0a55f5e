"""The input of TFX's table examples: `DataAccessor.tf_dataset_factory`, as their module files call it."""

from __future__ import annotations

import tensorflow as tf
from tensorflow_transform.tf_metadata import schema_utils
from tfx.components.util.tfxio_utils import get_tf_dataset_factory_from_artifact
from tfx.types import standard_artifacts
from tfx_bsl.public import tfxio

from tests.bench import ctr


def read(path: str, batch_size: int) -> tf.data.Dataset:
    """Reads transformed examples, shuffled and repeated, which is what its options are by default."""
    schema = schema_utils.schema_from_feature_spec(ctr.transformed_spec())
    factory = get_tf_dataset_factory_from_artifact([standard_artifacts.Examples()], [])
    options = tfxio.TensorFlowDatasetOptions(batch_size=batch_size, label_key=ctr.LABEL)
    return factory([path], options, schema)
