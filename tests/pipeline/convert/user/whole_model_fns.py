"""Whole model_fns like those of TensorFlow's tutorials, and networks with their layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1
# Optimizers of tf.compat.v1.train or Keras, by the name in a model_fn's params.
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: _V1.train.AdamOptimizer(0.002),
    "sgd": lambda: _V1.train.GradientDescentOptimizer(0.05),
    "momentum": lambda: _V1.train.MomentumOptimizer(0.02, 0.9),
    "nesterov": lambda: _V1.train.MomentumOptimizer(0.02, 0.9, use_nesterov=True),
    "rmsprop": lambda: _V1.train.RMSPropOptimizer(0.001),
    "rmsprop_centered": lambda: _V1.train.RMSPropOptimizer(0.001, momentum=0.5, centered=True),
    "adagrad": lambda: _V1.train.AdagradOptimizer(0.02),
    "ftrl": lambda: _V1.train.FtrlOptimizer(0.05, l1_regularization_strength=0.001),
    "decayed": lambda: _V1.train.AdamOptimizer(
        _V1.train.exponential_decay(0.004, _V1.train.get_global_step(), 6, 0.5, staircase=True)
    ),
    "keras_adam": lambda: _keras(tf.keras.optimizers.legacy.Adam(0.002)),
}


def _keras(optimizer: Any) -> Any:
    optimizer.iterations = _V1.train.get_or_create_global_step()
    return optimizer


def keras_layers(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Keras layers, as in the tutorial of multi-worker training."""
    layers = [
        tf.keras.layers.Conv2D(4, 3, strides=3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(16, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
    return _spec(tf.keras.Sequential(layers)(features["image"]), labels, mode, params)


def with_dropout(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Dense layers with dropout."""
    x = _V1.layers.flatten(features["image"])
    x = _V1.layers.dense(x, 16, tf.nn.relu)
    x = _V1.layers.dropout(x, params["rate"], training=mode == "train")
    return _spec(_V1.layers.dense(x, 10), labels, mode, params)


def averaged(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Weights with moving averages, which evaluation and serving restore."""
    x = _V1.layers.dense(_V1.layers.flatten(features["image"]), 16, tf.nn.relu)
    spec = _spec(_V1.layers.dense(x, 10), labels, mode, params)
    average = _V1.train.ExponentialMovingAverage(0.95)
    if mode == "train":
        with tf.control_dependencies([spec.train_op]):
            return spec._replace(train_op=average.apply(_V1.trainable_variables()))
    saver = _V1.train.Saver(average.variables_to_restore())
    return spec._replace(scaffold=_V1.train.Scaffold(saver=saver))


def v1_layers(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Layers of tf.compat.v1.layers, in their own scope."""
    with _V1.variable_scope("tower/net"):
        x = _V1.layers.conv2d(features["image"], 4, 3, strides=3, activation=tf.nn.relu)
        x = _V1.layers.conv2d(x, 4, 3, padding="same", activation=tf.nn.relu)
        x = _V1.layers.dense(_V1.layers.flatten(x), 16, activation=tf.nn.relu)
        return _spec(_V1.layers.dense(x, 10, name="logits"), labels, mode, params)


def v1_norm(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Two convolutions with normalisation."""
    x = features["image"]
    for name in ("one", "two"):
        with _V1.variable_scope(name):
            x = _V1.layers.conv2d(x, 4, 3, strides=3, use_bias=False)
            x = tf.nn.relu(_V1.layers.batch_normalization(x, momentum=0.8, training=mode == "train"))
    return _spec(_V1.layers.dense(_V1.layers.flatten(x), 10), labels, mode, params, probabilities=True)


def variables(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Only get_variable."""
    x = tf.reshape(features["image"], [-1, 784])
    for index, units in enumerate((16, 16, 10)):
        weights = _V1.get_variable(f"block{index}/weights", [x.shape[-1], units])
        x = x @ weights + _V1.get_variable(f"block{index}/biases", [units], initializer=tf.zeros_initializer())
        x = tf.nn.relu(x) if units == 16 else x
    return _spec(x, labels, mode, params)


def _spec(logits: Any, labels: Any, mode: str, params: Any, probabilities: bool = False) -> Any:
    name, scores = ("probabilities", tf.nn.softmax(logits)) if probabilities else ("logits", logits)
    if mode == "infer":
        predictions = {name: scores, "classes": tf.argmax(logits, -1)}
        served = {"serving_default": tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions, export_outputs=served)
    loss = _V1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == "eval":
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    optimizer = OPTIMIZERS[params["update"]]()
    with tf.control_dependencies(_V1.get_collection(_V1.GraphKeys.UPDATE_OPS)):
        if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
            train_op = optimizer.get_updates(loss, _V1.trainable_variables())[0]
        else:
            train_op = optimizer.minimize(loss, _V1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def keras_network(num_classes: int) -> tf.keras.Model:
    """The layers of keras_layers."""
    return _sequential(_conv(), _flat(), _dense(16), _dense(num_classes, None))


def dropout_network(num_classes: int, rate: float) -> tf.keras.Model:
    """The layers of with_dropout."""
    return _sequential(_flat(), _dense(16), tf.keras.layers.Dropout(rate), _dense(num_classes, None))


def other_dropout(num_classes: int) -> tf.keras.Model:
    """The layers of with_dropout, with another rate."""
    return dropout_network(num_classes, 0.1)


def without_dropout(num_classes: int) -> tf.keras.Model:
    """The same without dropout."""
    return _sequential(_flat(), _dense(16), _dense(num_classes, None))


def v1_network(num_classes: int) -> tf.keras.Model:
    """The layers of v1_layers, with other names."""
    more = tf.keras.layers.Conv2D(4, 3, padding="same", activation="relu", name="second")
    return _sequential(_conv(name="first"), more, _flat(), _dense(16, name="fc"), _dense(num_classes, None, name="out"))


def with_a_layer_more(num_classes: int) -> tf.keras.Model:
    """Another network."""
    return _sequential(_conv(), _flat(), _dense(16), _dense(16), _dense(num_classes, None))


def norm_network(num_classes: int) -> tf.keras.Model:
    """The layers of v1_norm."""
    layers: list[Any] = []
    for index in (1, 2):
        layers.append(_conv(activation=None, use_bias=False, name=f"conv{index}"))
        layers.append(tf.keras.layers.BatchNormalization(momentum=0.8, name=f"norm{index}"))
        layers.append(tf.keras.layers.ReLU())
    return _sequential(*layers, _flat(), _dense(num_classes, None, name="out"))


def dense_network(num_classes: int) -> tf.keras.Model:
    """The layers of variables."""
    return _sequential(_flat(), _dense(16, name="a0"), _dense(16, name="a1"), _dense(num_classes, None, name="a2"))


def _sequential(*layers: Any) -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.Input((28, 28, 1)), *layers])


def _conv(activation: str | None = "relu", **more: Any) -> Any:
    return tf.keras.layers.Conv2D(4, 3, strides=3, activation=activation, **more)


def _flat() -> Any:
    return tf.keras.layers.Flatten()


def _dense(units: int, activation: str | None = "relu", **more: Any) -> Any:
    return tf.keras.layers.Dense(units, activation, **more)
