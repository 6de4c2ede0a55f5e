"""Compares an Estimator with the Keras model that it became: what they answer, and what a step of training makes."""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.declared_input import DeclaredInput
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.user_models.keras_model import LOGITS
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.convert.placing import Placed

Features = dict[str, np.ndarray]
# Of logits, weights and slots.
MOST = 1e-5


@dataclasses.dataclass(frozen=True)
class Proof:
    """What was measured.

    Args:
        examples: How many of the evaluation examples were answered by both.
        logits: Largest difference between the two, of logits beyond 1 as a part of the largest; against the exported
            model too, where there is one.
        classes: Examples whose predicted class differs.
        next_step: Largest difference after one step more, by the kind of tensor; empty where layers draw by chance.
        chance: Those layers, of which each side draws otherwise, by name.
        rounding: Weights that the next step leaves out in Keras 3: their gradients are nothing but rounding.
    """

    examples: int
    logits: dict[str, float]
    classes: int
    next_step: dict[str, float]
    chance: list[str] = dataclasses.field(default_factory=list)
    rounding: list[str] = dataclasses.field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Are all differences small enough; one that is no number is not."""
        return not self.classes and all(each <= MOST for each in (*self.logits.values(), *self.next_step.values()))

    def to_dict(self) -> dict[str, Any]:
        """Returns what proof.json holds."""
        return {**dataclasses.asdict(self), "most": MOST, "holds": self.holds}


@dataclasses.dataclass(frozen=True)
class Answers:
    """What the Estimator says.

    Args:
        batches: Evaluation examples: features, and the Estimator's logits.
        batch: The next of training.
        after: Files with the tensors of the checkpoint that this leads to, which are not held in memory.
    """

    batches: list[tuple[Features, np.ndarray]]
    batch: tuple[Features, np.ndarray]
    after: dict[str, str]


def ask(
    estimator: tf.estimator.Estimator, checkpoint: str, names: Sequence[str], declared: DeclaredInput, folder: str
) -> Answers:
    """Asks the Estimator. Before there is a Keras model: one that is made in a graph spoils those that were not.

    Args:
        names: Of the checkpoint's tensors.
        declared: Its reader begins at the checkpoint's step.
        folder: For files.
    """
    reader = declared.reader
    evaluated = [features for features, _ in reader.input_fn(ModeKeys.EVAL).as_numpy_iterator()]
    batch = next(reader.input_fn(ModeKeys.TRAIN).as_numpy_iterator())
    run = functools.partial(_run, estimator, checkpoint)
    batches = [(each, run(ModeKeys.PREDICT, each, None, lambda spec: spec.predictions[LOGITS])) for each in evaluated]
    features, labels = batch
    after = {name: os.path.join(folder, f"{index}.npy") for index, name in enumerate(names)}
    run(ModeKeys.TRAIN, features, labels, lambda spec: spec.train_op, after)
    return Answers(batches, batch, after)


def compare_answers(answers: Answers, evaluated: KerasClassifier, declared: DeclaredInput, exported: str) -> Proof:
    """Compares what the Keras model answers with the Estimator.

    Args:
        evaluated: The model as evaluations and serving have it.
        exported: Folder of the SavedModel of that checkpoint; empty if there is none.
    """
    worst: dict[str, float] = collections.defaultdict(float)
    examples = classes = 0
    for features, old in answers.batches:
        new = evaluated(features, training=False).numpy()
        worst["estimator"] = max(worst["estimator"], _difference(old, new))
        classes += int((old.argmax(axis=1) != new.argmax(axis=1)).sum())
        examples += len(old)
    if exported:
        served = tf.saved_model.load(exported).signatures["serving_default"]
        files = tf.data.TFRecordDataset(sorted(declared.reader.eval_files))
        for serialized in files.batch(declared.reader.eval_batch_size):
            features = declared.reader.transform(tf.io.parse_example(serialized, declared.feature_spec))
            features.pop(declared.reader.label)
            new = evaluated(features, training=False).numpy()
            old = served(examples=serialized)[LOGITS].numpy()
            worst["exported model"] = max(worst["exported model"], _difference(old, new))
    return Proof(examples, dict(worst), classes, {})


def compare_step(proof: Proof, answers: Answers, model: KerasClassifier, placed: Sequence[Placed]) -> Proof:
    """Adds the next step of training: the model, as it is trained, is one further after it."""
    # Keras's layers draw by other operations in an Estimator's graph; StatelessDropout does not.
    layers = model.network._flatten_layers()
    chance = sorted({each.name for each in layers if getattr(each, "_random_generator", None) is not None})
    if chance:
        return dataclasses.replace(proof, chance=chance)
    moved: dict[str, float] = collections.defaultdict(float)
    tf.function(model.train_step)(answers.batch)
    for each in placed:
        kind = each.tensor.kind
        old = np.load(answers.after[each.tensor.name])
        moved[kind] = max(moved[kind], _difference(old, each.variable.numpy()))
    return dataclasses.replace(proof, next_step=dict(moved))


def _run(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    mode: str,
    features: Features,
    labels: Optional[np.ndarray],
    wanted: Callable[[tf.estimator.EstimatorSpec], Any],
    after: Optional[dict[str, str]] = None,
) -> Any:
    """Returns what a model_fn answers to a batch; writes variables as they are after it to files, by their names."""
    with tf.Graph().as_default():
        tf.compat.v1.train.create_global_step()
        given = {name: tf.constant(each) for name, each in features.items()}
        label = None if labels is None else tf.constant(labels)
        asked = wanted(estimator.model_fn(given, label, mode, estimator.config))
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.local_variables_initializer())
            tf.compat.v1.train.Saver().restore(session, checkpoint)
            answer = session.run(asked)
            found = {each.name.partition(":")[0]: each for each in tf.compat.v1.global_variables()}
            for name, path in (after or {}).items():
                np.save(path, session.run(found[name]))
            return answer


def _difference(old: np.ndarray, new: np.ndarray) -> float:
    """The largest one; of numbers beyond 1, whose rounding grows with them, as a part of the largest."""
    difference = np.abs(np.subtract(new, old, dtype=np.float64)).max(initial=0.0)
    return float(difference / max(1.0, np.abs(old).max(initial=0.0)))
