"""Models that tests train: in float64, of layers that behave differently on several devices, and one that is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import tensorflow as tf

from model_fn import networks
from model_fn.classifier import make_model_fn
from model_fn.layers import StatelessDropout, SynchronizedBatchNormalization


def in_float64(num_classes: int, network: str, **params: Any) -> tf.keras.Model:
    """A network whose weights and activations are float64.

    Sums in another order then differ by 1e-16. In float32 they differ by 1e-7, and sooner or later a ReLU or a maximum
    of almost equal numbers goes the other way, from where on two trainings drift apart whatever the strategy.

    Args:
        num_classes: Number of logits.
        network: Of `model_fn.networks`, or of this module.
        **params: Of the network.

    Returns:
        An unbuilt model.
    """
    tf.keras.backend.set_floatx("float64")
    build = regularised if network == "regularised" else getattr(networks, network)
    return build(num_classes, **params)


def regularised(num_classes: int, norm: str = "", dropout: str = "") -> tf.keras.Model:
    """A small network with normalisation, with dropout, or with both.

    Args:
        num_classes: Number of logits.
        norm: `keras`, `synchronized` or none.
        dropout: `keras`, `stateless` or none.

    Returns:
        An unbuilt model.
    """
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


class _KillWorkerOnce(tf.estimator.SessionRunHook):
    """Kills the process of a worker, not the chief's, at a step; once."""

    def __init__(self, at: int, marker: Path) -> None:
        self._at = at
        self._marker = marker

    def before_run(self, run_context: Any) -> tf.estimator.SessionRunArgs:
        return tf.estimator.SessionRunArgs(tf.compat.v1.train.get_global_step())

    def after_run(self, run_context: Any, run_values: Any) -> None:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        if config.get("task", {}).get("type") == "worker" and run_values.results >= self._at and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def killed_once(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> tf.estimator.EstimatorSpec:
    """A model_fn of `mnist_cnn` whose worker dies at step `params["kill_at"]`, when there is no `params["marker"]`."""
    spec = make_model_fn(networks.mnist_cnn)(features, labels, mode, params)
    hook = _KillWorkerOnce(params["kill_at"], Path(params["marker"]))
    return spec._replace(training_hooks=[*spec.training_hooks, hook])
