"""Saves a written network's model, and compares it with the canned Estimator, under either Keras."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.session import Answer, Batch
from tfx_estimator.model_fn.bridge.steps import Trained
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP, Placed, Reader
from tfx_estimator.model_fn.bridge.trial import compare_answers, compare_steps
from tfx_estimator.model_fn.bridge.written import load


@dataclass(frozen=True)
class Trial:
    """The network to compare."""

    folder: str
    head: str
    checkpoint: str
    placed: list[Placed]
    batches: list[Batch]
    trained: Trained


def compare(trial: Trial, answers: Iterable[Answer]) -> dict[str, Any]:
    """Writes model.keras, and returns the fields of a `Proof`."""
    module = load(trial.folder)
    model = module.network()
    module.restore(model)
    _save(module, model, os.path.join(trial.folder, "model.keras"))

    def answer(batch: Batch, _: str) -> np.ndarray:
        return np.asarray(model(module.prepare(batch.tensors()), training=False))

    found = compare_answers(answers, answer, trial.head)
    # What depends on a value is written with operations: AutoGraph would only take its time.
    train_step = tf.function(model.train_step, autograph=False)

    def train(batch: Batch) -> Any:
        model.mean_loss.reset_state()
        return train_step(module.prepare(batch.tensors(), batch.label()))["loss"]

    steps = {f"step of {part}": each.iterations for part, each in model.by_part.items()}
    variables = {**module.places(model), **steps, GLOBAL_STEP: next(iter(steps.values()))}
    reader = Reader(trial.checkpoint)
    return found | compare_steps(trial.trained, trial.placed, reader, train, lambda: trial.batches, variables)


def _save(module: ModuleType, model: Any, file: str) -> None:
    """Saves the model without its optimizers, since Keras's format holds only one."""
    bare = module.network()
    for empty, layer in zip(bare.layers, model.layers):
        empty.set_weights(layer.get_weights())
    bare.save(file)
