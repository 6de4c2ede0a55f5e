"""`cifar_resnet9` against the same network of only Keras's layers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.networks import cifar_resnet9

WIDTH = 4


def of_stock_layers(num_classes: int):
    """Units of Conv, pooling, normalisation and ReLU; two residual pairs; an eighth of the logits."""
    layers = tf.keras.layers

    def unit(inputs, filters, pool=False):
        outputs = layers.Conv2D(filters, 3, padding="same", use_bias=False)(inputs)
        outputs = layers.MaxPooling2D()(outputs) if pool else outputs
        return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(outputs))

    def residual(inputs, filters):
        return layers.Add()([inputs, unit(unit(inputs, filters), filters)])

    images = tf.keras.Input([32, 32, 3])
    outputs = residual(unit(unit(images, WIDTH), 2 * WIDTH, pool=True), 2 * WIDTH)
    outputs = residual(unit(unit(outputs, 4 * WIDTH, pool=True), 8 * WIDTH, pool=True), 8 * WIDTH)
    logits = layers.Dense(num_classes, use_bias=False)(layers.GlobalMaxPooling2D()(outputs))
    return tf.keras.Model(images, logits / 8)


def variables(model) -> list:
    """Sorts variables in an order that does not depend on the nesting of layers."""
    return [*model.trainable_variables, *model.non_trainable_variables]


def test_resnet9_is_the_network_of_keras_layers_in_outputs_gradients_and_averages():
    random = np.random.default_rng(2)
    images = tf.constant(random.normal(size=(6, 32, 32, 3)), tf.float32)
    ours, stock = cifar_resnet9(7, width=WIDTH), of_stock_layers(7)
    ours.build(images.shape)
    for one, other in zip(variables(ours), variables(stock)):
        one.assign_add(0.1 * random.random(one.shape))
        other.assign(one)
    results = []
    for model in (ours, stock):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_sum(logits**2)
        gradients = tape.gradient(loss, model.trainable_variables)
        results.append([logits, *gradients, *variables(model), model(images, training=False)])
    assert results[0][0].shape == (6, 7)
    for one, other in zip(*results):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())
