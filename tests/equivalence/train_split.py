"""Trains networks whole and with split weights, in one process: `python -m tests.equivalence.train_split FILE CASE …`.

In a process of its own, since logical devices must be set up before TensorFlow's first op.
"""

from __future__ import annotations

import json
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from tfx_estimator.components.trainer.keras.drivers import make_execute
from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.keras.saver import checkpoint_of
from tfx_estimator.model_fn.layers import StatelessDropout
from tfx_estimator.model_fn.strategies import configure_devices
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import UserCodeError

STEPS, BATCH = 20, 24
_SPEC = {
    "image": tf.io.FixedLenFeature([8, 8, 1], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}
_COLUMNS = {"dense1/kernel": [None, "model"], "dense1/bias": ["model"]}
_ROWS = {"dense1/kernel": ["model", None]}
LAYOUTS: dict[str, dict[str, list[Optional[str]]]] = {
    "columns": _COLUMNS,
    "columns without bias": {"dense1/kernel": [None, "model"]},
    "rows": _ROWS,
    "last columns": {"logits/*": [None, "model"], "logits/bias": ["model"]},
    "last rows": {"logits/kernel": ["model", None]},
    "pair": {**_COLUMNS, "dense2/kernel": ["model", None]},
    "every kernel": {"d*/kernel": [None, "model"], "logits/kernel": ["model", None]},
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "learning_rate": 0.05, "weight_decay": 0.001, "global_clip_norm": 1.0},
    "momentum": {"name": "momentum", "learning_rate": 0.02},
    "adam": {"name": "adam", "learning_rate": 0.003},
    "adamw": {"name": "adamw", "learning_rate": 0.003},
}


def in_float64(num_classes: int, form: str = "functional") -> tf.keras.Model:
    """A convolution, three dense layers, one of which is read twice, and dropout; or dense layers one after the other.

    Or one that cannot be trained so: it normalises batches, drops what chance says, or has a constraint.
    """
    layers = tf.keras.layers
    own = {"dtype": "float64"}
    dense1, dense2 = layers.Dense(32, name="dense1", **own), layers.Dense(16, "tanh", name="dense2", **own)
    logits = layers.Dense(num_classes, name="logits", **own)
    if form == "sequential":
        cast = layers.Lambda(lambda image: tf.cast(image, tf.float64), **own)
        return tf.keras.Sequential([cast, layers.Flatten(**own), dense1, layers.ReLU(**own), dense2, logits])
    image = tf.keras.Input([8, 8, 1])
    if form == "normalising":
        return tf.keras.Model(
            image, logits(dense1(layers.Flatten(**own)(layers.BatchNormalization(name="norm")(image))))
        )
    if form == "dropping":
        return tf.keras.Model(image, logits(layers.Dropout(0.5, **own)(dense1(layers.Flatten(**own)(image)))))
    if form == "constrained":
        dense1 = layers.Dense(32, kernel_constraint=tf.keras.constraints.MaxNorm(1.0), name="dense1", **own)
    found = layers.Conv2D(4, 3, activation="relu", name="conv", **own)(tf.cast(image, tf.float64))
    first = dense1(layers.Flatten(**own)(layers.MaxPooling2D(**own)(found)))
    second = dense2(StatelessDropout(0.25, **own)(layers.ReLU(**own)(first)))
    return tf.keras.Model(image, logits(layers.Concatenate(**own)([first, second])))


def _batches(skip: int) -> Iterator[Any]:
    random = np.random.default_rng(7)
    for step in range(STEPS):
        image, label = random.normal(size=(BATCH, 8, 8, 1)), random.integers(0, 10, BATCH)
        if step >= skip:
            yield {"image": tf.constant(image, tf.float32)}, tf.constant(label, tf.int64)


def train(folder: str, case: str, split: bool, begin: str = "", steps: tuple[int, int] = (0, STEPS)) -> dict[str, Any]:
    """Trains.

    Args:
        folder: For its checkpoint.
        case: A layout, an optimizer and a form, with dots between.
        split: As the layout says, or whole.
        begin: A checkpoint to begin with.
        steps: The first one, from 0, and how many there are when training ends.

    Returns:
        Losses, the checkpoint, what it holds, and what the first device has of each variable.
    """
    layout, optimizer, form, size = case.split(".")
    mesh = {"mesh": {"model": int(size)}, "layout": LAYOUTS[layout]}
    section = TrainerSection(
        path="keras_custom_loop",
        model="split_networks:in_float64",
        params={"form": form},
        train_steps=STEPS,
        global_batch_size=BATCH,
        seed=3,
        optimizer=OPTIMIZERS[optimizer],
        **({"model_parallel": mesh} if split else {}),
    )
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(3)
    model = ModelMaker(section, 10, _SPEC).make_compiled(2)
    if begin:
        checkpoint_of(model).restore(begin).assert_existing_objects_matched()
    execute, losses, batches = make_execute(model, tf.distribute.get_strategy()), [], _batches(steps[0])
    if not split:
        step = tf.function(model.train_step)
        execute = lambda batches, *_: step(next(batches))  # noqa: E731
    for _ in range(*steps):
        losses.append(float(execute(batches, tf.constant(1, tf.int64))["loss"]))
    path = checkpoint_of(model).save(tempfile.mkdtemp(dir=folder) + "/ckpt")
    reader = tf.train.load_checkpoint(path)
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith("_CHECK")]
    parts = {}
    for variable in [*model.trainable_variables, *model.optimizer.variables()] if split else ():
        parts[variable.name.partition(":")[0]] = dtensor.unpack(variable.read_value())[0].shape.as_list()
    return {"losses": losses, "path": path, "values": {name: reader.get_tensor(name) for name in names}, "parts": parts}


# What cannot be split so, by what is wrong.
REFUSED: dict[str, dict[str, list[Optional[str]]]] = {
    "filters": {"conv/kernel": [None, None, None, "model"]},
    "no such weight": {"dense1/kernel": [None, "model"], "dense9/*": [None, "model"]},
    "dimensions": {"dense1/bias": [None, "model"]},
    "size": {"logits/kernel": [None, "model"]},
    "normalising": _COLUMNS,
    "constrained": _COLUMNS,
    "dropping": _COLUMNS,
}


def refuse(wrong: str) -> str:
    """Does a step with a layout that cannot be; returns what is said."""
    mesh = {"mesh": {"model": 4}, "layout": REFUSED[wrong]}
    params = {"form": wrong} if REFUSED[wrong] is _COLUMNS else {}
    section = TrainerSection(
        path="keras", model="split_networks:in_float64", params=params, train_steps=1, model_parallel=mesh
    )
    try:
        execute = make_execute(ModelMaker(section, 10, _SPEC).make_compiled(1), tf.distribute.get_strategy())
        execute(_batches(0), tf.constant(1, tf.int64))
    except UserCodeError as error:
        return str(error)
    raise AssertionError(wrong)


def _apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert one["values"].keys() == other["values"].keys()
    found = [np.abs(np.subtract(value, other["values"][name], dtype=float)) for name, value in one["values"].items()]
    return float(max(each.max() for each in found if each.size))


def _compare(folder: str, case: str) -> dict[str, Any]:
    whole, split = train(folder, case, False), train(folder, case, True)
    half = STEPS // 2
    begun = {kind: train(folder, case, kind == "split", steps=(0, half))["path"] for kind in ("whole", "split")}
    return {
        "losses": float(np.abs(np.subtract(whole["losses"], split["losses"])).max()),
        "weights": _apart(whole, split),
        "parts": split["parts"],
        "fell": [split["losses"][0], split["losses"][-1]],
        "split from whole": _apart(whole, train(folder, case, True, begun["whole"], (half, STEPS))),
        "whole from split": _apart(whole, train(folder, case, False, begun["split"], (half, STEPS))),
        "split from split": _apart(whole, train(folder, case, True, begun["split"], (half, STEPS))),
    }


def main(file: str, *cases: str) -> None:
    """Trains cases, and writes to a JSON file how far they lie apart."""
    sys.modules["split_networks"] = types.ModuleType("split_networks")
    sys.modules["split_networks"].in_float64 = in_float64  # type: ignore[attr-defined]
    configure_devices(cpus=4)
    found: dict[str, Any] = {"refused": {wrong: refuse(wrong) for wrong in REFUSED}}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            found[case] = _compare(folder, case)
        Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
