"""Makes the step of networks with state on one device and under a strategy of two; trains none of them.

In its own process, because logical devices must be set up before TensorFlow's first op. Prints as JSON, for each
network and strategy, the assignments that each replica's step finds in addition to Keras's, and whether the graph
treats its branches as before.
"""

from __future__ import annotations

import functools
import json
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from tests.components.trainer.user.keeps_state import Keeps
from tests.model_fn.batch import PARAMS
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.layers import SynchronizedBatchNormalization
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.model_fn.step import step as built_in
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.distribution import TrainStrategy

bring_back_estimator()
SECTIONS = {
    name: TrainStrategy.parse_obj({"strategy": name, **({} if name == "one_device" else {"devices": {"cpu": 2}})})
    for name in ("one_device", "mirrored")
}
LAYERS = {"keras": tf.keras.layers.BatchNormalization, "synchronized": SynchronizedBatchNormalization, "keeps": Keeps}
GIVEN = {**PARAMS, "global_batch_size": 4}


def network(num_classes: int, kind: Any) -> tf.keras.Model:
    """Two instances of a layer, in sequence."""
    layers = tf.keras.layers
    return tf.keras.Sequential([tf.keras.Input([5]), kind(), layers.Dense(4), kind(), layers.Dense(num_classes)])


def find(kind: Any, strategy: Any) -> tuple[list[list[str]], bool]:
    """Returns the assignments that each replica's step finds."""
    found, find_in = [], built_in.assignments

    def note(*args: Any, **kwargs: Any) -> list[tf.Operation]:
        operations = find_in(*args, **kwargs)
        found.append([each.name for each in operations])
        return operations

    def step() -> tf.Tensor:
        features = {"image": tf.constant(np.ones([2, 5], np.float32))}
        model_fn = make_model_fn(functools.partial(network, kind=kind))
        return model_fn(features, tf.constant([0, 1], tf.int64), ModeKeys.TRAIN, GIVEN).loss

    graph = tf.Graph()
    with graph.as_default(), mock.patch.object(built_in, "assignments", note):
        if strategy is None:
            step()
        else:
            with strategy.scope():
                strategy.extended.call_for_each_replica(step)
    return found, graph._add_control_dependencies


def main() -> None:
    configure_devices(*SECTIONS.values())
    for name, section in SECTIONS.items():
        strategy = make_strategy(section)
        for layer, kind in LAYERS.items():
            print(json.dumps([name, layer, *find(kind, strategy)]), flush=True)


if __name__ == "__main__":
    main()
