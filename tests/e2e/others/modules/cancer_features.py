"""Shared by the module files in this folder: TFX packs them together, so each imports it by its bare name."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.tfxio import dataset_options

LABEL = "benign"
SCALED = ("mean_concave_points", "worst_texture", "worst_perimeter", "worst_smoothness")
BUCKETS = {"mean_concavity": 8, "worst_area": 8}
VOCABULARY = "size"
BATCH = 64


def preprocessing_fn(inputs):
    outputs = {name: tft.scale_to_z_score(_dense(inputs[name])) for name in SCALED}
    outputs.update({name: tft.bucketize(_dense(inputs[name]), count) for name, count in BUCKETS.items()})
    outputs[VOCABULARY] = tft.compute_and_apply_vocabulary(inputs[VOCABULARY], vocab_filename=VOCABULARY)
    outputs[LABEL] = _dense(inputs[LABEL])
    return outputs


def _dense(feature):
    if isinstance(feature, tf.SparseTensor):
        feature = tf.sparse.to_dense(feature)
    return tf.reshape(feature, [-1])


def batches(files, data_accessor, transform_output, epochs=None):
    """Returns batches of transformed features and labels, read as in TFX's examples."""
    options = dataset_options.TensorFlowDatasetOptions(
        batch_size=BATCH, label_key=LABEL, num_epochs=epochs, shuffle_seed=11
    )
    return data_accessor.tf_dataset_factory(files, options, transform_output.transformed_metadata.schema)
