"""Saves a written network's model, and compares it with the Estimator's outputs, under either Keras."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.convert.canned.head import CLASSES, REGRESSION
from tfx_estimator.pipeline.convert.canned.session import Batch
from tfx_estimator.pipeline.convert.differences import MOST, Step, difference
from tfx_estimator.pipeline.convert.tensors import SLOT, STEP
from tfx_estimator.pipeline.convert.written import load


@dataclass(frozen=True)
class Moved:
    """A tensor of the checkpoint that the model has as well.

    Args:
        before: Its value in the checkpoint.
        after: Its value after the Estimator's next step.
    """

    place: str
    kind: str
    slot: str
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True)
class Trial:
    """The network to compare.

    Args:
        folder: With network.py, vocabularies and weights.
        head: Kind of the head.
        draws: True if training the network is random.
        batch: Batch of the Estimator's next step.
    """

    folder: str
    head: str
    draws: bool
    batch: Batch


def compare(trial: Trial, answers: Iterable[tuple[Batch, np.ndarray]], moved: Iterable[Moved]) -> dict[str, Any]:
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
    result: dict[str, Any] = {"examples": examples, "logits": worst, "classes": classes}
    result |= {"next_step": {}, "parts": {}, "chance": []}
    if trial.draws:
        result["chance"] = [layer.name for layer in model.layers if isinstance(layer, tf.keras.layers.Dropout)]
        return result
    tf.function(model.train_step)(module.prepare(trial.batch.tensors(), trial.batch.label()))
    found = {**module.places(model), "global_step": next(iter(model.by_part.values())).iterations}
    trained = {id(variable) for _, variables in model.trained() for variable in variables}
    step = Step()
    for each in moved:
        variable = found[each.place]
        part = "linear" if each.place.startswith("linear_") else "deep"
        group = f"trained {part}" if id(variable) in trained else "other"
        group = f"{each.slot} of {part}" if each.kind == SLOT else group
        step.add(each.kind, group, each.before, each.after, np.asarray(variable))
    # The global step is a counter, which is either equal or not.
    parts = {kind: part for kind, part in step.parts.items() if kind != STEP}
    return {**result, "next_step": dict(step.largest), "parts": parts}


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
