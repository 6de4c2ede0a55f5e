"""The executor of ImageSchemaGen."""

from __future__ import annotations

import os
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.tfds_example_gen.properties import label_names
from tfx_estimator.data.features import IMAGE, LABEL

SCHEMA_FILE = "schema.pbtxt"


class Executor(base_executor.BaseExecutor):
    """Writes the schema of raw uint8 images with one class label each."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Writes schema.pbtxt."""
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        schema = image_schema(len(label_names(examples)))
        folder = artifact_utils.get_single_uri(output_dict["schema"])
        fileio.makedirs(folder)
        with fileio.open(os.path.join(folder, SCHEMA_FILE), "w") as file:
            file.write(text_format.MessageToString(schema))


def image_schema(num_classes: int) -> schema_pb2.Schema:
    """Returns the schema: every example has both features, with one value, and the label is in range.

    The empty shape makes TensorFlow Transform parse them as dense tensors of shape (batch,).
    """
    one = schema_pb2.FixedShape()
    always = schema_pb2.FeaturePresence(min_fraction=1.0, min_count=1)
    image = schema_pb2.Feature(name=IMAGE, type=schema_pb2.BYTES, shape=one, presence=always)
    # With an image domain, statistics measure lengths instead of counting every image as a word.
    image.image_domain.SetInParent()
    label = schema_pb2.Feature(name=LABEL, type=schema_pb2.INT, shape=one, presence=always)
    # Not `is_categorical`: statistics would keep only the most frequent values, and miss a rare wrong label among many
    # classes. For numbers they keep the exact minimum and maximum.
    label.int_domain.CopyFrom(schema_pb2.IntDomain(name=LABEL, min=0, max=num_classes - 1))
    return schema_pb2.Schema(feature=[image, label])
