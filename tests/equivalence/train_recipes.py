"""Trains a small network as declared, by an Estimator and by Keras, under several strategies in one process.

`python -m tests.equivalence.train_recipes FOLDER NAME…`; in its own process, like `train_layers`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf

from tests.equivalence.conftest import read_weights
from tests.equivalence.train_layers import begin
from tests.equivalence.user.own_networks import constrained, in_float64
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.config.trainer import TrainerSection

BATCH, STEPS = 16, 12
SHAPE = (12, 12, 1)
# Entries of `params`. Each clips below the actual norms, and each optimizer has different slots.
RECIPES: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": {"name": "momentum", "global_clip_norm": 0.3, "warmup_steps": 4}},
    "nadam": {
        "optimizer": {
            "name": "nadam",
            "clip_norm": 0.05,
            "schedule": "exponential",
            "decay_steps": 4,
            "decay_rate": 0.5,
        },
        "label_smoothing": 0.1,
    },
    "adafactor": {
        "optimizer": {"name": "adafactor", "clip_value": 0.01, "decoupled_weight_decay": 0.1, "schedule": "linear"},
        "class_weights": [1.0, 3.0],
    },
}
# Entries of a recipe that parts must not change.
WITH_ALL: dict[str, Any] = {
    "optimizer": {"name": "sgd", "learning_rate": 0.05, "weight_decay": 0.01, "global_clip_norm": 1.0},
    "class_weights": [1.0, 3.0],
    "label_smoothing": 0.1,
}
# Trains `linear`, under the first two strategies.
SCALED: dict[str, Any] = {
    "optimizer": {"name": "sgd", "learning_rate": 0.1, "schedule": "constant", "scaling": "linear", "warmup_steps": 4}
}
# Trains `branched`, likewise.
PLAIN: dict[str, Any] = {"optimizer": {"name": "sgd", "learning_rate": 0.05, "schedule": "constant"}}
# Train `constrained`, likewise: with updates by TensorFlow, and by our code because of an option.
_CONSTRAINED: dict[str, Any] = {"name": "momentum", "learning_rate": 0.5, "schedule": "constant"}
CONSTRAINED: dict[str, dict[str, Any]] = {
    "constrained": {"optimizer": _CONSTRAINED},
    "constrained_clipped": {"optimizer": {**_CONSTRAINED, "global_clip_norm": 0.4}},
}
# Two strategies of several devices for the first alone: each training costs a second.
LEFT_OUT = {"nadam": "central_storage", "adafactor": "mirrored"}
PATHS = ("estimator", "keras")
# Name of the trainings other than RECIPES.
OTHERS = "others"
# Suffixes of the names of trained weights.
WEIGHTS = ("kernel", "bias", "gamma", "beta", "embeddings")


def data(batch: int) -> tf.data.Dataset:
    """Returns batches of images, as features, with the label in their upper half."""
    images = np.random.default_rng(7).normal(size=(10 * BATCH, *SHAPE)).astype(np.float32) + 0.5
    labels = (images[:, : SHAPE[0] // 2].mean((1, 2, 3)) > 0.5).astype(np.int64)
    return tf.data.Dataset.from_tensor_slices(({"image": images}, labels)).repeat().batch(batch, drop_remainder=True)


def with_estimator(
    recipe: dict[str, Any],
    built: Optional[tf.distribute.Strategy],
    folder: str,
    network: Union[str, Callable[[int], tf.keras.Model]] = "regularised",
    **options: str,
) -> list[np.ndarray]:
    """Trains by the built-in model_fn; returns the weights in order of their names."""

    def input_fn(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
        batch = input_context.get_per_replica_batch_size(BATCH) if input_context else BATCH
        return data(batch)

    params = {"num_classes": 2, "train_steps": STEPS, "global_batch_size": BATCH, "seed": 3, **recipe}
    config = tf.estimator.RunConfig(folder, tf_random_seed=3, train_distribute=built)
    build = network if callable(network) else functools.partial(in_float64, network=network, **options)
    tf.estimator.Estimator(make_model_fn(build), config=config, params=params).train(input_fn, max_steps=STEPS)
    return trained_weights(folder)


def trained_weights(folder: str) -> list[np.ndarray]:
    """Returns the weights of an Estimator's last checkpoint in order of their names."""
    weights = read_weights(folder)
    return [weights[name] for name in sorted(weights) if name.rpartition("/")[2] in WEIGHTS]


def with_keras(
    recipe: dict[str, Any], built: Optional[tf.distribute.Strategy], network: str = "regularised", **options: str
) -> list[np.ndarray]:
    """Trains by the steps of the Keras paths; returns the same."""
    strategy = built or tf.distribute.get_strategy()
    tf.keras.utils.set_random_seed(3)
    section = TrainerSection(train_steps=STEPS, global_batch_size=BATCH, seed=3, **recipe)
    with strategy.scope():
        model = in_float64(2, network=network, **options)
        model.build((None, *SHAPE))
        classifier = KerasClassifier(model, section)
        classifier.compile(optimizer=DeclaredOptimizer(section.optimizer, STEPS))
    run = tf.function(lambda *batch: strategy.run(classifier.train_step, args=(batch,)))
    replicas = strategy.num_replicas_in_sync
    batches = iter(strategy.distribute_datasets_from_function(lambda context: data(BATCH // replicas)))
    for _ in range(STEPS):
        run(*next(batches))
    return [weight.numpy() for weight in sorted(model.trainable_variables, key=lambda weight: weight.name)]


def main(folder: str, *names: str) -> None:
    """Trains RECIPES and OTHERS by name; saves the weights of each to `RECIPE.PATH.STRATEGY.npz`."""
    for strategy, built in begin().items():
        for name in names:
            if name == OTHERS:
                _train_others(folder, strategy, built)
            elif strategy != LEFT_OUT.get(name):
                _train_both(folder, f"{name}.{{path}}.{strategy}", RECIPES[name], built, "regularised")
    if "momentum" in names:
        unclipped = {**RECIPES["momentum"]["optimizer"], "global_clip_norm": None}
        np.savez(Path(folder) / "momentum.unclipped.npz", *with_keras({"optimizer": unclipped}, None))
    if "adafactor" in names:
        plain = {"optimizer": RECIPES["adafactor"]["optimizer"]}
        np.savez(Path(folder) / "adafactor.plain.npz", *with_keras(plain, None))


def _train_others(folder: str, strategy: str, built: Optional[tf.distribute.Strategy]) -> None:
    if strategy != "central_storage":
        _train_both(folder, f"scaled.{{path}}.{strategy}", SCALED, built, "linear")
        _train_both(folder, f"branched.{{path}}.{strategy}", PLAIN, built, "branched")
        for name, recipe in CONSTRAINED.items():
            _train_both(folder, f"{name}.{{path}}.{strategy}", recipe, built, "constrained")
    if strategy == "mirrored":
        half = {**CONSTRAINED["constrained"], "precision": "mixed_float16"}
        tf.keras.backend.set_floatx("float32")
        trained = with_estimator(half, built, f"{folder}/constrained_half", constrained)
        np.savez(Path(folder) / "constrained_half.npz", *trained)
        tf.keras.mixed_precision.set_global_policy("float64")


def _train_both(
    folder: str, name: str, recipe: dict[str, Any], built: Optional[tf.distribute.Strategy], network: str
) -> None:
    saved = {
        "estimator": with_estimator(recipe, built, f"{folder}/{name.format(path='model')}", network),
        "keras": with_keras(recipe, built, network),
    }
    for path, weights in saved.items():
        np.savez(Path(folder) / f"{name.format(path=path)}.npz", *weights)


if __name__ == "__main__":
    main(sys.argv[1], *sys.argv[2:])
