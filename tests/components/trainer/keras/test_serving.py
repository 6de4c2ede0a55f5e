"""What is exported of a model: all that its answers need."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.keras.serving import ServedModel
from tfx_estimator.model_fn.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.config.trainer import TrainerSection


class Decoded(tf.keras.layers.Layer):
    """Stands for a Transform graph: the raw bytes as floats."""

    def call(self, inputs):
        pixels = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
        return {"image": tf.cast(tf.reshape(pixels, [-1, 2, 2, 1]), tf.float32)}


def test_a_network_with_a_vocabulary_is_exported_with_it(tmp_path):
    image = tf.keras.Input((2, 2, 1), name="image")
    words = tf.keras.layers.IntegerLookup(vocabulary=[10, 20, 30])(tf.cast(tf.keras.layers.Flatten()(image), tf.int64))
    embedded = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(5, 3)(words))
    network = tf.keras.Model(image, tf.keras.layers.Dense(3)(embedded))
    model = KerasClassifier(network, TrainerSection(model="mnist_cnn", train_steps=1))
    declared = SimpleNamespace(
        transform_output=SimpleNamespace(transform_features_layer=Decoded),
        feature_spec={"image": tf.io.FixedLenFeature([], tf.string)},
    )
    served = ServedModel(model, declared, (2, 2, 1), ["a", "b", "c"])
    tf.saved_model.save(served, str(tmp_path), signatures=served.signatures())
    images = np.array([10, 20, 30, 40, 7, 10, 20, 10], np.uint8).reshape(2, 2, 2, 1)
    answers = tf.saved_model.load(str(tmp_path)).signatures["images"](images=tf.constant(images))
    expected = network(images.astype(np.float32)).numpy()
    np.testing.assert_allclose(answers["logits"].numpy(), expected, atol=1e-6)
    assert [name.decode() for name in answers["classes"].numpy()] == ["abc"[i] for i in expected.argmax(axis=1)]
