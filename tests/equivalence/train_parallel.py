"""Trains networks whole and divided, in one process: `python -m tests.equivalence.train_parallel FOLDER CASE.PATH …`.

In its own process, because logical devices must be set up before TensorFlow's first op.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tests.equivalence.train_recipes import BATCH, SHAPE, WITH_ALL, data, trained_weights
from tests.equivalence.user.own_networks import in_float64
from tfx_estimator.components.trainer.estimator import patches
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.parallel.division import find_division
from tfx_estimator.model_fn.parallel.strategies import configure_devices
from tfx_estimator.model_fn.step.classifier import make_model_fn, make_run_config
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.config.trainer import TrainerSection

PATHS = ("estimator", "keras")
STEPS = 5
_CPUS = ["cpu:0", "cpu:1"]
_DROPOUT = {"model": "own_networks:in_float64", "params": {"network": "regularised", "dropout": "stateless"}}
_BRANCHED = {"model": "own_networks:in_float64", "params": {"network": "branched"}}
# Entries of `trainer`, whole and divided.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "layers": (
        {**WITH_ALL, **_DROPOUT},
        {"model_parallel": {"devices": _CPUS, "layers": {"dense": 1, "relu2": 1, "logits": 1, "dropout2": 1}}},
    ),
    "branches": (
        {**_BRANCHED, "optimizer": {"name": "adam", "learning_rate": 0.003}},
        {"model_parallel": {"devices": ["cpu:1", "cpu:0"], "layers": {"right": 1, "*at*": 0, "logits": 1}}},
    ),
    "stages": ({**WITH_ALL, **_DROPOUT}, {"pipeline_parallel": {"stages": 2, "microbatches": 3}}),
    "three stages": (
        {**_DROPOUT, "optimizer": {"name": "adam", "learning_rate": 0.003}},
        {
            "pipeline_parallel": {
                "stages": [["conv"], ["dropout1"], ["dense*", "logits"]],
                "microbatches": 4,
                "devices": ["cpu:2", "cpu:0", "cpu:1"],
            }
        },
    ),
}


class _Traces(tf.compat.v1.train.SessionRunHook):
    """Traces one step, and keeps the device of each operation."""

    def __init__(self) -> None:
        self.ran: dict[str, list[str]] = {}

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        return tf.compat.v1.train.SessionRunArgs(None, options=options)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        for device in run_values.run_metadata.step_stats.dev_stats:
            self.ran[_device(device.device)] = [node.node_name for node in device.node_stats]


def _device(name: str) -> str:
    return name.rpartition("/device:")[2]


def _partitions(metadata: Any) -> dict[str, list[str]]:
    """Returns the operations of a tf.function by device, after TensorFlow's partitioning."""
    graphs: Iterable[Any] = (each for function in metadata.function_graphs for each in function.partition_graphs)
    found: dict[str, list[str]] = {}
    for node in (node for graph in graphs for node in graph.node):
        found.setdefault(_device(node.device), []).append(node.name)
    return found


def with_estimator(section: TrainerSection, folder: str) -> tuple[list[np.ndarray], dict[str, list[str]]]:
    """Trains by the built-in model_fn; returns the weights, and the last step's operations by device."""
    params = {
        "num_classes": 2,
        "optimizer": section.optimizer.resolved(),
        **{name: getattr(section, name) for name in ("train_steps", "global_batch_size", "seed")},
        **section.loss_options,
    }
    network = functools.partial(in_float64, **section.params)
    model_fn = make_model_fn(network, section if section.is_divided else None)
    config = make_run_config(section, folder).replace(save_checkpoints_steps=STEPS)
    traces = _Traces()
    tf.estimator.Estimator(model_fn, config=config, params=params).train(
        lambda: data(BATCH), max_steps=STEPS, hooks=[traces]
    )
    return trained_weights(folder), traces.ran


def with_keras(section: TrainerSection) -> tuple[list[np.ndarray], dict[str, list[str]]]:
    """Trains by the steps of the Keras paths; returns the same."""

    def make() -> tf.keras.Model:
        tf.keras.backend.reset_uids()
        tf.keras.utils.set_random_seed(section.seed)
        return in_float64(2, **section.params)

    image = tf.zeros([1, *SHAPE])
    division = find_division(section, make, {"image": tf.TensorSpec(image.shape, image.dtype)})
    with division.used() if division else contextlib.nullcontext():
        network = make()
    with division.used(network) if division else contextlib.nullcontext():
        network(image)
    if division:
        division.check(network)
    model = KerasClassifier(network, section, division)
    model.compile(optimizer=DeclaredOptimizer(section.optimizer, STEPS))
    step = tf.function(lambda *batch: model.train_step(batch))
    ran: dict[str, list[str]] = {}
    for number, batch in zip(range(STEPS), data(BATCH)):
        if not number:
            context.enable_graph_collection()
        step(*batch)
        if not number:
            ran = _partitions(context.export_run_metadata())
            context.disable_graph_collection()
    for variable in [*network.variables, *model.optimizer.variables()]:
        ran.setdefault(_device(variable.device), []).append(f"variable {variable.name}")
    return [each.numpy() for each in sorted(model.network.trainable_variables, key=lambda each: each.name)], ran


def main(folder: str, *names: str) -> None:
    """Trains cases; saves the weights to `CASE.PATH.npz`, the whole network's to `CASE.npz`, and the devices."""
    tf.get_logger().setLevel("ERROR")
    sys.path.insert(0, str(Path(__file__).parent / "user"))
    configure_devices(cpus=3)
    patches.apply((*patches.PATCHES, *patches.REPLICA_PATCHES))
    for name in names:
        _train(folder, name)


def _train(folder: str, name: str) -> None:
    case, _, path = name.partition(".")
    whole, divided = CASES[case]
    common = {"train_steps": STEPS, "global_batch_size": BATCH, "seed": 3, **whole}
    if not (Path(folder) / f"{case}.npz").exists():
        np.savez(Path(folder) / f"{case}.npz", *with_keras(TrainerSection(**common))[0])
    section = TrainerSection(**common, **divided)
    weights, ran = with_estimator(section, f"{folder}/{name}") if path == "estimator" else with_keras(section)
    np.savez(Path(folder) / f"{name}.npz", *weights)
    (Path(folder) / f"{name}.json").write_text(json.dumps(ran))


if __name__ == "__main__":
    main(*sys.argv[1:])
