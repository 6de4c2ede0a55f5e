"""Trains small Estimators under several strategies in one process: `python -m tests.equivalence.train_layers FOLDER`.

In its own process, because logical devices must be set up before TensorFlow's first op.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tests.equivalence.conftest import read_losses, read_weights
from tests.equivalence.user.own_networks import in_float64
from tfx_estimator.components.trainer.estimator import patches
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.pipeline.config.distribution import TrainStrategy

SECTIONS = {
    "one_device": TrainStrategy(),
    "mirrored": TrainStrategy.parse_obj({"strategy": "mirrored", "devices": {"cpu": 2}}),
    "central_storage": TrainStrategy.parse_obj({"strategy": "central_storage", "devices": {"cpu": 2}}),
}
TWO, THREE = ("one_device", "mirrored"), tuple(SECTIONS)
SMALL, LARGE = (12, 12, 1), (32, 32, 3)
BATCH, STEPS = 16, 50
# Network, strategies, shape of the images.
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[int, int, int]]] = {
    "cifar_cnn": ({"network": "cifar_cnn"}, THREE, LARGE),
    "keras_norm": ({"network": "regularised", "norm": "keras"}, TWO, SMALL),
    "synchronized_norm": ({"network": "regularised", "norm": "synchronized"}, THREE, SMALL),
    "keras_dropout": ({"network": "regularised", "dropout": "keras"}, TWO, SMALL),
    "stateless_dropout": ({"network": "regularised", "dropout": "stateless"}, THREE, SMALL),
}


def train(case: str, strategy: str, built: Optional[tf.distribute.Strategy], folder: Path) -> None:
    """Trains one case, and saves `losses`, float [STEPS], and every variable of the checkpoint."""
    network, _, shape = CASES[case]
    random = np.random.default_rng(7)
    images = random.normal(size=(10 * BATCH, *shape)).astype(np.float32) + 0.5
    labels = (images[:, : shape[0] // 2].mean((1, 2, 3)) > 0.5).astype(np.int64)

    def input_fn(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
        per_replica = input_context.get_per_replica_batch_size(BATCH) if input_context else BATCH
        return tf.data.Dataset.from_tensor_slices(({"image": images}, labels)).repeat().batch(per_replica)

    params = {
        "num_classes": 2,
        "train_steps": STEPS,
        "global_batch_size": BATCH,
        "seed": 3,
        "optimizer": {"name": "momentum", "learning_rate": 0.05, "schedule": "constant"},
    }
    model_dir = str(folder / f"{case}.{strategy}")
    config = tf.estimator.RunConfig(model_dir, tf_random_seed=3, save_summary_steps=1, train_distribute=built)
    model_fn = make_model_fn(functools.partial(in_float64, **network))
    tf.estimator.Estimator(model_fn, config=config, params=params).train(input_fn, max_steps=STEPS)
    losses = [loss for _, loss in read_losses(model_dir)]
    # Names in an npz file have no slash.
    weights = {name.replace("/", "."): value for name, value in read_weights(model_dir).items()}
    np.savez(folder / f"{case}.{strategy}.npz", losses=losses, **weights)


def begin() -> dict[str, Optional[tf.distribute.Strategy]]:
    """Sets the process up like a task, and creates the strategies."""
    tf.get_logger().setLevel("ERROR")
    configure_devices(*SECTIONS.values())
    patches.apply((*patches.PATCHES, *patches.REPLICA_PATCHES))
    return {name: make_strategy(section) for name, section in SECTIONS.items()}


def main(folder: str) -> None:
    built = begin()
    for case, (_, strategies, _) in CASES.items():
        for strategy in strategies:
            train(case, strategy, built[strategy], Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
