"""Saves a written network's model, and compares it with the Estimator's outputs, under either Keras."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge import steps
from tfx_estimator.model_fn.bridge.canned.head import CLASSES, REGRESSION
from tfx_estimator.model_fn.bridge.canned.session import Batch
from tfx_estimator.model_fn.bridge.differences import MOST, difference
from tfx_estimator.model_fn.bridge.written import load


@dataclass(frozen=True)
class Trial:
    """The network to compare.

    Args:
        folder: With network.py, vocabularies and weights.
        head: Kind of the head.
        batches: Batches of the Estimator's next steps.
        trained: The Estimator after these.
    """

    folder: str
    head: str
    batches: list[Batch]
    trained: steps.Trained


def compare(trial: Trial, answers: Iterable[tuple[Batch, np.ndarray]], moved: Iterable[steps.Moved]) -> dict[str, Any]:
    """Writes model.keras, and returns the fields of a `Proof`.

    Args:
        answers: Batches of evaluation, and the Estimator's logits of each.
        moved: Read after `answers`.
    """
    module = load(trial.folder)
    model = module.network()
    module.restore(model)
    _save(module, model, os.path.join(trial.folder, "model.keras"))
    worst, classes, examples = 0.0, 0, 0
    for batch, old in answers:
        new = np.asarray(model(module.prepare(batch.tensors()), training=False))
        worst = max(worst, difference(old, new))
        classes += _differing_classes(trial.head, old, new)
        examples += len(old)
    # What depends on a value is written with operations: AutoGraph would only take its time.
    train_step = tf.function(model.train_step, autograph=False)

    def train(batch: Batch) -> Any:
        model.mean_loss.reset_state()
        return train_step(module.prepare(batch.tensors(), batch.label()))["loss"]

    variables = {**module.places(model), "global_step": next(iter(model.by_part.values())).iterations}
    compared = steps.compare(trial.trained, moved, train, trial.batches, variables)
    return {"examples": examples, "logits": worst, "classes": classes, **compared}


def _save(module: ModuleType, model: Any, file: str) -> None:
    """Saves the model without its optimizers, since Keras's format holds only one."""
    bare = module.network()
    for empty, layer in zip(bare.layers, model.layers):
        empty.set_weights(layer.get_weights())
    bare.save(file)


def _differing_classes(head: str, old: np.ndarray, new: np.ndarray) -> int:
    """Counts the examples with another predicted class, unless rounding explains it."""
    if head == REGRESSION:
        return 0
    near = MOST * max(1.0, float(np.abs(old).max(initial=0.0)))
    if head != CLASSES:
        return int(np.any(((old > 0) != (new > 0)) & (np.abs(old - new) > near), axis=1).sum())
    rows = np.arange(len(old))
    apart = old[rows, old.argmax(axis=1)] - old[rows, new.argmax(axis=1)]
    return int((apart > 2 * near).sum())
