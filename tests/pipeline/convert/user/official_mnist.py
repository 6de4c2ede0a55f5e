"""A model_fn like that of the official MNIST model of tensorflow/models, r1, with BatchNorm; and its layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Two convolutions of 5 x 5, each normalised and pooled; a dense layer, and dropout."""
    layers, training = _V1.layers, mode == tf.estimator.ModeKeys.TRAIN
    x = features["image"] if isinstance(features, dict) else features
    for filters in params["filters"]:
        x = layers.conv2d(x, filters, 5, padding="same")
        x = tf.nn.relu(layers.batch_normalization(x, momentum=0.9, training=training))
        x = layers.max_pooling2d(x, (2, 2), (2, 2), padding="same")
    x = layers.dense(layers.flatten(x), params["units"], activation=tf.nn.relu)
    logits = layers.dense(layers.dropout(x, params["rate"], training=training), 10)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
        served = {"classify": tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions, export_outputs=served)
    loss = _V1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = _V1.metrics.accuracy(labels=labels, predictions=tf.argmax(logits, axis=1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = _V1.train.AdamOptimizer(learning_rate=1e-3)
    with tf.control_dependencies(_V1.get_collection(_V1.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, _V1.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def network(num_classes: int, filters: list[int], units: int, rate: float) -> tf.keras.Model:
    """The same layers."""
    layers = tf.keras.layers
    found: list[Any] = [tf.keras.Input((28, 28, 1))]
    for each in filters:
        found += [layers.Conv2D(each, 5, padding="same"), layers.BatchNormalization(momentum=0.9), layers.ReLU()]
        found.append(layers.MaxPooling2D(padding="same"))
    found += [layers.Flatten(), layers.Dense(units, "relu"), layers.Dropout(rate), layers.Dense(num_classes)]
    return tf.keras.Sequential(found)
