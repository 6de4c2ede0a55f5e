"""Prints the strategy that user code finds with two logical CPUs declared: `python -m … FOLDER`, in its own process."""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.run_fn import declared
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.config.distribution import TrainStrategy

IMAGES = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
LABELS = np.arange(8) % 2


def fit() -> tuple[list, int, str]:
    """Trains without naming a strategy; returns weights, replicas and the model's strategy."""
    tf.keras.utils.set_random_seed(7)
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(IMAGES, LABELS, batch_size=8, epochs=3, shuffle=False, verbose=0)
    strategy = model.distribute_strategy
    return model.get_weights(), strategy.num_replicas_in_sync, type(strategy).__name__


def main() -> None:
    section = TrainStrategy.parse_obj({"strategy": "mirrored", "devices": {"cpu": 2}})
    configure_devices(section)
    strategy = make_strategy(section)
    found: dict = {}
    notices: list[str] = []
    plain, replicas, name = fit()
    assert (replicas, name) == (1, "_DefaultDistributionStrategy")
    with declared(strategy, notices.append):
        weights, *found["knows of none"] = fit()
        found["difference"] = max(float(np.abs(one - two).max()) for one, two in zip(plain, weights))
        made = {
            "get_strategy": tf.distribute.get_strategy(),
            "MirroredStrategy": tf.distribute.MirroredStrategy(),
            "its own reduction": tf.distribute.MirroredStrategy(
                cross_device_ops=tf.distribute.HierarchicalCopyAllReduce()
            ),
            "MultiWorkerMirroredStrategy": tf.distribute.MultiWorkerMirroredStrategy(),
            "experimental": tf.distribute.experimental.MultiWorkerMirroredStrategy(),
        }
        found["declared"] = [name for name, each in made.items() if each is strategy]
        found["replicas"] = strategy.num_replicas_in_sync
        assert not notices
        with strategy.scope():
            own = tf.distribute.MirroredStrategy(["/cpu:1"])
        with own.scope():
            found["own"] = fit()[1:]
        found["after"] = tf.distribute.has_strategy()
        assert not notices[1:]
    found["notices"] = notices
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
