"""Compares an Estimator with the Keras model that it became: what they answer, and what a step of training makes."""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.declared_input import DeclaredInput
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.user_models.keras_model import LOGITS, PROBABILITIES
from tfx_estimator.pipeline.base.errors import NotEqualError, UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.convert.placing import Placed
from tfx_estimator.pipeline.convert.training_graph import Training, look

Features = dict[str, np.ndarray]
# Of logits, weights and slots.
MOST = 1e-5


@dataclasses.dataclass(frozen=True)
class Proof:
    """What was measured.

    Args:
        examples: How many of the evaluation examples were answered by both.
        logits: Largest difference between the two, of logits beyond 1 as a part of the largest; against the exported
            model too, where there is one. Of the probabilities where a model_fn answers with those alone.
        classes: Examples whose predicted class differs.
        next_step: Largest difference after one step more, by the kind of tensor; empty where layers draw by chance.
        chance: Those layers, of which each side draws otherwise, by name.
        rounding: Weights that the next step leaves out in Keras 3: their gradients are nothing but rounding.
        compared: What the model_fn answers: `logits` or `probabilities`.
        parts: By the kind of tensor, the difference after one step more as a part of that step.
    """

    examples: int
    logits: dict[str, float]
    classes: int
    next_step: dict[str, float]
    chance: list[str] = dataclasses.field(default_factory=list)
    rounding: list[str] = dataclasses.field(default_factory=list)
    compared: str = LOGITS
    parts: dict[str, float] = dataclasses.field(default_factory=dict)

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
        compared: What it answers with: `logits` or `probabilities`.
        batches: Evaluation examples: features, and these of the Estimator.
        batch: The next of training.
        after: Files with the tensors of the checkpoint that this leads to, which are not held in memory.
        training: What the graph tells of a whole model_fn; None of a network's.
    """

    compared: str
    batches: list[tuple[Features, np.ndarray]]
    batch: tuple[Features, np.ndarray]
    after: dict[str, str]
    training: Optional[Training] = None


def ask(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    names: Sequence[str],
    declared: DeclaredInput,
    folder: str,
    steps: Optional[tuple[int, int]] = None,
) -> Answers:
    """Asks the Estimator. Before there is a Keras model: one that is made in a graph spoils those that were not.

    Args:
        names: Of the checkpoint's tensors.
        declared: Its reader begins at the checkpoint's step.
        folder: For files.
        steps: Of a whole model_fn, whose graph is read: the checkpoint's, and the last of the training.
    """
    reader = declared.reader
    evaluated = [features for features, _ in reader.input_fn(ModeKeys.EVAL).as_numpy_iterator()]
    features, labels = batch = next(reader.input_fn(ModeKeys.TRAIN).as_numpy_iterator())
    run = functools.partial(_run, estimator, checkpoint)
    answered = [
        run(ModeKeys.PREDICT, each, None, lambda spec, session: session.run(_scores(spec))) for each in evaluated
    ]
    compared = next(iter(answered[0]))
    training: Optional[Training] = None
    after = {name: os.path.join(folder, f"{index}.npy") for index, name in enumerate(names)}

    def train(spec: tf.estimator.EstimatorSpec, session: tf.compat.v1.Session) -> None:
        nonlocal training
        if steps is not None:
            training = look(session, spec.train_op, *steps)
            # What it has read may have come after an update of moving averages.
            tf.compat.v1.train.Saver().restore(session, checkpoint)
        session.run(spec.train_op)
        found = {each.op.name: each for each in tf.compat.v1.global_variables()}
        for name in after.keys() & found:
            np.save(after[name], session.run(found[name]))

    run(ModeKeys.TRAIN, features, labels, train)
    batches = [(each, answer[compared]) for each, answer in zip(evaluated, answered)]
    return Answers(compared, batches, batch, after, training)


def compare_answers(answers: Answers, evaluated: KerasClassifier, declared: DeclaredInput, exported: str) -> Proof:
    """Compares what the Keras model answers with the Estimator.

    Args:
        evaluated: The model as evaluations and serving have it.
        exported: Folder of the SavedModel of that checkpoint; empty if there is none.
    """
    worst: dict[str, float] = collections.defaultdict(float)
    examples = classes = 0
    compared = answers.compared
    for features, old in answers.batches:
        new = _answer(evaluated, features, compared)
        worst["estimator"] = max(worst["estimator"], difference(old, new))
        classes += int((old.argmax(axis=1) != new.argmax(axis=1)).sum())
        examples += len(old)
    if exported:
        served = tf.saved_model.load(exported).signatures["serving_default"]
        files = tf.data.TFRecordDataset(sorted(declared.reader.eval_files))
        for serialized in files.batch(declared.reader.eval_batch_size):
            features = declared.reader.transform(tf.io.parse_example(serialized, declared.feature_spec))
            features.pop(declared.reader.label)
            outputs = served(examples=serialized)
            if (key := next((each for each in (compared, PROBABILITIES, LOGITS) if each in outputs), None)) is None:
                break
            old, new = outputs[key].numpy(), _answer(evaluated, features, key)
            worst["exported model"] = max(worst["exported model"], difference(old, new))
    return Proof(examples, dict(worst), classes, {}, compared=compared)


def compare_step(proof: Proof, answers: Answers, model: KerasClassifier, placed: Sequence[Placed]) -> Proof:
    """Adds the next step of training: the model, as it is trained, is one further after it."""
    # Keras's layers draw by other operations in an Estimator's graph; StatelessDropout does not.
    layers = model.network._flatten_layers()
    chance = sorted({each.name for each in layers if getattr(each, "_random_generator", None) is not None})
    drawn = chance if answers.training is None else answers.training.chance
    if bool(chance) != bool(drawn):
        raise UserCodeError(
            f"the model_fn draws by chance in {', '.join(drawn) or 'nothing'}, and the network in "
            f"{', '.join(chance) or 'nothing'}",
            expected="a layer of the network, such as Dropout, for each that draws in the model_fn",
            todo="have the network train as the model_fn does",
        )
    if chance:
        return dataclasses.replace(proof, chance=chance)
    moved: dict[str, float] = collections.defaultdict(float)
    tf.function(model.train_step)(answers.batch)
    for each in placed:
        kind = each.tensor.kind
        old = np.load(answers.after[each.tensor.name])
        moved[kind] = max(moved[kind], difference(old, each.variable.numpy()))
    return dataclasses.replace(proof, next_step=dict(moved))


def _scores(spec: tf.estimator.EstimatorSpec) -> dict[str, tf.Tensor]:
    """The answer of a model_fn that is compared, by what it is."""
    served = (spec.export_outputs or {}).get("serving_default")
    for given in (spec.predictions, getattr(served, "outputs", None)):
        for key in (LOGITS, PROBABILITIES):
            if isinstance(given, Mapping) and key in given:
                return {key: given[key]}
    raise UserCodeError(
        "the predictions of the model_fn are neither called logits nor probabilities",
        expected=f"an entry {LOGITS} or {PROBABILITIES}, [batch, classes], in predictions or in serving_default",
        todo="add it; no other training follows from it",
    )


def _answer(model: KerasClassifier, features: Features, key: str) -> np.ndarray:
    logits = model(features, training=False)
    return (logits if key == LOGITS else tf.nn.softmax(logits)).numpy()


def _run(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    mode: str,
    features: Features,
    labels: Optional[np.ndarray],
    wanted: Callable[[tf.estimator.EstimatorSpec, tf.compat.v1.Session], Any],
) -> Any:
    """Returns what is wanted of a model_fn that is called with a batch, its variables those of the checkpoint."""
    with tf.Graph().as_default():
        tf.compat.v1.train.create_global_step()
        given = {name: tf.constant(each) for name, each in features.items()}
        label = None if labels is None else tf.constant(labels)
        spec = estimator.model_fn(given, label, mode, estimator.config)
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.local_variables_initializer(), tf.compat.v1.tables_initializer()])
            tf.compat.v1.train.Saver().restore(session, checkpoint)
            return wanted(spec, session)


def difference(old: np.ndarray, new: np.ndarray) -> float:
    """Returns the largest one; of numbers beyond 1, whose rounding grows with them, as a part of the largest."""
    if old.shape != new.shape:
        raise UserCodeError(
            f"the model_fn answers with the shape {list(old.shape)}, and the network with {list(new.shape)}",
            expected="a number for each class of both",
            todo="correct the network",
        )
    apart = np.abs(np.subtract(new, old, dtype=np.float64)).max(initial=0.0)
    return float(apart / max(1.0, np.abs(old).max(initial=0.0)))


def not_equal(proof: Proof, todo: str) -> NotEqualError:
    """Returns the error of a proof that does not hold."""
    found = [f"{proof.compared} of the {name}: {value:.3g}" for name, value in proof.logits.items()]
    found += [f"{name} after the next step: {value:.3g}" for name, value in proof.next_step.items()]
    found += [f"predicted classes that differ: {proof.classes} of {proof.examples}"]
    return NotEqualError(
        "\n".join(["the Keras model is not the Estimator: largest differences", *found]),
        expected=f"at most {MOST:g}, and the same classes; so nothing was written",
        todo=todo,
    )
