"""Compares an Estimator with the Keras model that it became: what they answer, and what a step of training makes."""

from __future__ import annotations

import collections
import dataclasses
import functools
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
        logits: Largest difference between the two; against the exported model too, where there is one.
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
    """What the Estimator says, in memory.

    Args:
        batches: Evaluation examples: features, and the Estimator's logits.
        batch: The next of training.
        after: The tensors of the checkpoint that this leads to.
    """

    batches: list[tuple[Features, np.ndarray]]
    batch: tuple[Features, np.ndarray]
    after: dict[str, np.ndarray]


def ask(estimator: tf.estimator.Estimator, checkpoint: str, names: Sequence[str], declared: DeclaredInput) -> Answers:
    """Asks the Estimator. Before there is a Keras model: one that is made in a graph spoils those that were not.

    Args:
        names: Of the checkpoint's tensors.
        declared: Its reader begins at the checkpoint's step.
    """
    reader = declared.reader
    evaluated = [features for features, _ in reader.input_fn(ModeKeys.EVAL).as_numpy_iterator()]
    batch = next(reader.input_fn(ModeKeys.TRAIN).as_numpy_iterator())
    run = functools.partial(_run, estimator, checkpoint)
    batches = [(each, run(ModeKeys.PREDICT, each, None, lambda spec: spec.predictions[LOGITS])) for each in evaluated]
    features, labels = batch
    return Answers(batches, batch, run(ModeKeys.TRAIN, features, labels, lambda spec: spec.train_op, names))


def prove(
    answers: Answers,
    model: KerasClassifier,
    evaluated: KerasClassifier,
    placed: Sequence[Placed],
    declared: DeclaredInput,
    exported: str,
) -> Proof:
    """Compares the Keras model with the Estimator.

    Args:
        model: Is trained, and one step further after it.
        evaluated: The same for evaluation.
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
    # Keras's layers draw by other operations in an Estimator's graph; StatelessDropout does not.
    layers = model.network._flatten_layers()
    chance = sorted({each.name for each in layers if getattr(each, "_random_generator", None) is not None})
    moved: dict[str, float] = collections.defaultdict(float)
    if chance:
        return Proof(examples, dict(worst), classes, {}, chance)
    tf.function(model.train_step)(answers.batch)
    for each in placed:
        kind = each.tensor.kind
        moved[kind] = max(moved[kind], _difference(answers.after[each.tensor.name], each.variable.numpy()))
    return Proof(examples, dict(worst), classes, dict(moved))


def _run(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    mode: str,
    features: Features,
    labels: Optional[np.ndarray],
    wanted: Callable[[tf.estimator.EstimatorSpec], Any],
    names: Optional[Sequence[str]] = None,
) -> Any:
    """Returns what a model_fn answers to a batch; with names, the variables after it."""
    with tf.Graph().as_default():
        tf.compat.v1.train.create_global_step()
        given = {name: tf.constant(each) for name, each in features.items()}
        label = None if labels is None else tf.constant(labels)
        asked = wanted(estimator.model_fn(given, label, mode, estimator.config))
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.local_variables_initializer())
            tf.compat.v1.train.Saver().restore(session, checkpoint)
            answer = session.run(asked)
            if names is None:
                return answer
            found = {each.name.partition(":")[0]: each for each in tf.compat.v1.global_variables()}
            return session.run({name: found[name] for name in names})


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    difference = np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64))
    return float(difference.max(initial=0.0))
