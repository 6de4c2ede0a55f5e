"""Models for tests: in float64, with layers that differ on several devices, and one that kills its process."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn import networks
from tfx_estimator.model_fn.layers import StatelessDropout, SynchronizedBatchNormalization


def in_float64(num_classes: int, network: str, **params: Any) -> tf.keras.Model:
    """Returns a network whose weights and activations are float64.

    Sums in another order then differ by 1e-16. In float32 they differ by 1e-7, and sooner or later a ReLU or a maximum
    of nearly equal numbers flips, after which two trainings diverge under any strategy.
    """
    tf.keras.backend.set_floatx("float64")
    own = {"regularised": regularised, "linear": linear, "branched": branched, "constrained": constrained}
    build = own.get(network) or getattr(networks, network)
    return build(num_classes, **params)


def linear(num_classes: int) -> tf.keras.Model:
    """Returns one matrix, initially zero, whose training NumPy can repeat."""
    dense = tf.keras.layers.Dense(num_classes, use_bias=False, kernel_initializer="zeros", name="logits")
    return tf.keras.Sequential([tf.keras.layers.Flatten(name="flatten"), dense], name="net")


def regularised(num_classes: int, norm: str = "", dropout: str = "") -> tf.keras.Model:
    """Returns a small network with normalisation, with dropout, or with both."""
    layers = tf.keras.layers
    norms = {"keras": layers.BatchNormalization, "synchronized": SynchronizedBatchNormalization}
    dropouts = {"keras": layers.Dropout, "stateless": StatelessDropout}
    stack = [layers.Conv2D(8, 3, strides=2, name="conv")]
    stack += [norms[norm](momentum=0.9, name="norm1")] if norm else []
    stack += [layers.ReLU(name="relu1")]
    stack += [dropouts[dropout](0.25, name="dropout1")] if dropout else []
    stack += [layers.Flatten(name="flatten"), layers.Dense(16, name="dense")]
    stack += [norms[norm](momentum=0.9, name="norm2")] if norm else []
    stack += [layers.ReLU(name="relu2")]
    stack += [dropouts[dropout](0.5, name="dropout2")] if dropout else []
    return tf.keras.Sequential([*stack, layers.Dense(num_classes, name="logits")], name="net")


def named_like_options(num_classes: int, seed: int, **others: Any) -> tf.keras.Model:
    """Returns a float64 network whose arguments have the names of declared options, without their meaning."""
    tf.keras.backend.set_floatx("float64")
    layers = tf.keras.layers
    stack = [layers.Flatten(name="flatten"), layers.Dense(seed, activation="relu", name="dense")]
    stack += [StatelessDropout(0.5, name="dropout"), layers.Dense(num_classes, name="logits")]
    return tf.keras.Sequential(stack, name="net")


def branched(num_classes: int) -> tf.keras.Model:
    """Returns a functional network, built at once, with two branches, one of which contains a model.

    A layer's output is regularised too: in an Estimator's graph Keras lists that of the placeholder as well.
    """
    layers = tf.keras.layers
    image = tf.keras.Input((12, 12, 1), name="image")
    left = layers.Conv2D(4, 3, strides=3, activity_regularizer="l2", name="left")(image)
    left = layers.Flatten(name="flatten")(left)
    right = tf.keras.Sequential(
        [layers.Flatten(), layers.Dense(8, activation="relu", name="right_dense")], name="right"
    )(image)
    both = tf.nn.relu(layers.Concatenate(name="both")([left, right]))
    return tf.keras.Model(image, layers.Dense(num_classes, kernel_regularizer="l2", name="logits")(both), name="net")


def constrained(num_classes: int) -> tf.keras.Model:
    """Returns a network whose weights all have constraints; a table has gradients for few rows."""
    layers, constraints = tf.keras.layers, tf.keras.constraints
    image = tf.keras.Input((12, 12, 1), name="image")
    pixels = layers.Flatten(name="flatten")(image)
    hidden = layers.Dense(8, "tanh", kernel_constraint=constraints.MaxNorm(0.5), name="dense")(pixels)
    table = layers.Embedding(9, 4, embeddings_constraint=constraints.UnitNorm(axis=1), name="kernel")
    rows = table(layers.Lambda(lambda each: tf.cast(tf.clip_by_value(each[:, :6], -1.0, 2.0) + 1.0, tf.int64))(pixels))
    both = layers.Concatenate(name="both")([hidden, layers.Flatten(name="rows")(rows)])
    logits = layers.Dense(num_classes, bias_constraint=constraints.NonNeg(), name="logits")
    return tf.keras.Model(image, logits(both), name="net")


def _is_of(job: str) -> bool:
    """True if this process is a task of that job; the Keras paths unset TF_CONFIG after creating the strategy."""
    return any(f"/job:{job}/" in device for device in tf.distribute.get_strategy().extended.worker_devices)


class _KillWorkerOnce(tf.keras.layers.Layer):
    """Passes its inputs through, and kills a worker's process, not the chief's, once, at a step."""

    def __init__(self, at: int, marker: Path) -> None:
        super().__init__(name="kill")
        self._at = at
        self._marker = marker
        # Shared by all parts of a batch, each of which is traced separately.
        self._counter = itertools.count()

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training or not _is_of("worker"):
            return inputs
        step = tf.compat.v1.train.get_global_step()
        looked = tf.numpy_function(self._look, [self._calls() if step is None else step], tf.int64)
        with tf.control_dependencies([looked]):
            return tf.identity(inputs)

    def _calls(self) -> tf.Tensor:
        """Counts calls on the Keras paths, which have no global step."""
        return tf.numpy_function(lambda: np.int64(next(self._counter)), [], tf.int64)

    def _look(self, step: np.int64) -> np.int64:
        if step >= self._at and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return step


def killed_once(num_classes: int, kill_at: int, marker: str) -> tf.keras.Model:
    """Returns `mnist_cnn`, whose worker dies once at a step, or on the Keras paths at a training call."""
    model = networks.mnist_cnn(num_classes)
    model.add(_KillWorkerOnce(kill_at, Path(marker)))
    return model


class _Count(tf.keras.layers.Layer):
    """Passes its inputs through; on the chief, writes the bytes that the network received until each step."""

    def __init__(self, file: Path) -> None:
        super().__init__(name="count")
        self._file = file
        self._counts: dict[int, int] = {}

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training or not _is_of("chief"):
            return inputs
        # The Keras paths have no global step here.
        counted = tf.numpy_function(self._count, [], tf.int64)
        with tf.control_dependencies([counted]):
            return tf.identity(inputs)

    def _count(self) -> np.int64:
        lines = Path("/proc/net/dev").read_text().splitlines()
        received = next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))
        self._counts[len(self._counts)] = received
        # Keras wraps the attributes of a layer.
        self._file.write_text(json.dumps(dict(self._counts)))
        return np.int64(received)


def counted(num_classes: int, file: str) -> tf.keras.Model:
    """Returns `mnist_cnn`, whose chief writes the bytes on the network until each training call."""
    model = networks.mnist_cnn(num_classes)
    model.add(_Count(Path(file)))
    return model
