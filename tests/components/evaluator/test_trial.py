"""The Evaluator's call of a served signature, on made-up examples, as TFMA makes it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma

from tfx_estimator.components.evaluator.trial import try_signature
from tfx_estimator.pipeline.errors import UserCodeError

CONFIG = tfma.EvalConfig(model_specs=[tfma.ModelSpec(signature_name="serving_default", label_key="label")])
SPEC = {"image": tf.io.FixedLenFeature([], tf.string)}


def scores(raw: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reshape(tf.io.decode_raw(tf.reshape(raw, [-1]), tf.uint8), [-1, 4]), tf.float32)


SERVED = {
    "examples": (tf.TensorSpec([None], tf.string), lambda each: scores(tf.io.parse_example(each, SPEC)["image"])),
    # By the name of a feature.
    "image": (tf.TensorSpec([None], tf.string), scores),
    "images": (tf.TensorSpec([None, 2, 2, 1], tf.float32), lambda each: tf.reshape(each, [-1, 4])),
    "inputs": (tf.TensorSpec([None], tf.string), lambda each: scores(tf.io.decode_base64(each))),
}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("examples", ""),
        ("image", ""),
        ("images", r"`serving_default`, which takes images: float32 \(None, 2, 2, 1\): "),
        ("inputs", r"`serving_default`, which takes inputs: string \(None,\): .*base64"),
    ],
)
def test_a_signature_that_tfma_cannot_call_is_told(tmp_path, name, told):
    spec, function = SERVED[name]
    module = tf.Module()
    module.serve = tf.function(lambda **inputs: {"scores": function(inputs[name])}, input_signature=None)
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.serve.get_concrete_function(**{name: spec})})
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[np.arange(4, dtype=np.uint8).tobytes()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[1])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    if told:
        with pytest.raises(UserCodeError, match=told):
            try_signature(str(tmp_path), CONFIG, [example] * 3)
    else:
        try_signature(str(tmp_path), CONFIG, [example] * 3)
