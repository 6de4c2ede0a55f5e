"""Compares an Estimator with the Keras model converted from it: their outputs, and the next training step."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.declared_input import DeclaredInput
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.user_models.keras_model import LOGITS, PROBABILITIES
from tfx_estimator.pipeline.base.errors import NotEqualError, UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.convert.differences import MOST, MOST_OF_STEP, Step, difference
from tfx_estimator.pipeline.convert.placing import Placed
from tfx_estimator.pipeline.convert.tensors import SLOT, STEP
from tfx_estimator.pipeline.convert.training_graph import Training, draws, look

Features = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Proof:
    """The measured differences.

    Args:
        examples: Number of evaluation examples predicted by both.
        logits: Largest difference of the logits, relative to the largest logit if that exceeds 1, from the Estimator
            and, if there is one, from the exported model. Of the probabilities if a model_fn returns only those.
        classes: Examples whose predicted class differs.
        next_step: Largest difference after another step, by the kind of tensor; empty if layers are random.
        parts: Difference relative to what the step changed: see `differences.Step`.
        chance: Names of random layers, which draw differently on each side.
        rounding: Weights left out of the step's comparison in Keras 3: their gradients are only rounding errors.
        compared: The compared output of the model_fn: `logits` or `probabilities`.
    """

    examples: int
    logits: dict[str, float]
    classes: int
    next_step: dict[str, float]
    parts: dict[str, float] = dataclasses.field(default_factory=dict)
    chance: list[str] = dataclasses.field(default_factory=list)
    rounding: list[str] = dataclasses.field(default_factory=list)
    compared: str = LOGITS

    @property
    def holds(self) -> bool:
        """True if all differences are small enough."""
        are_near = all(each <= MOST for each in (*self.logits.values(), *self.next_step.values()))
        return not self.classes and are_near and all(each <= MOST_OF_STEP for each in self.parts.values())

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of proof.json."""
        return {**dataclasses.asdict(self), "most": MOST, "holds": self.holds}


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The batches of evaluation examples, each with the Estimator's output.

    Args:
        declared: Reads the features again for each iteration: all together may not fit in memory.
        answers: By batch, [examples, classes].
    """

    declared: DeclaredInput
    answers: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[tuple[Features, np.ndarray]]:
        for (features, _), answer in zip(_evaluation(self.declared), self.answers):
            yield features, answer


@dataclasses.dataclass(frozen=True)
class Answers:
    """The Estimator's results.

    Args:
        compared: Name of its output: `logits` or `probabilities`.
        batches: Evaluation examples with outputs.
        batch: The next training batch.
        after: Files with the checkpoint's tensors after a step on that batch, by name; not held in memory.
        chance: Scopes of random operations in a step.
        training: Read from the graph of a whole model_fn; None for a network.
    """

    compared: str
    batches: Evaluated
    batch: tuple[Features, np.ndarray]
    after: dict[str, str]
    chance: list[str]
    training: Optional[Training] = None


def run_estimator(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    names: Sequence[str],
    declared: DeclaredInput,
    folder: str,
    steps: Optional[tuple[int, int]] = None,
) -> Answers:
    """Runs the Estimator's evaluation and its next training step.

    It must run before a Keras model is created: one that is created in a graph breaks those that were not.

    Args:
        names: Names of the checkpoint's tensors.
        declared: Its reader begins at the checkpoint's step.
        folder: For files.
        steps: For a whole model_fn, whose graph is read: the checkpoint's step, and the last of the training.
    """
    batch = next(declared.reader.input_fn(ModeKeys.TRAIN).as_numpy_iterator())
    given = next(_evaluation(declared))[0]
    with _called(estimator, checkpoint, ModeKeys.PREDICT, given) as (spec, session, inputs):
        scores = _scores(spec)
        found = [
            session.run(scores, {inputs[name]: each for name, each in features.items()})
            for features, _ in _evaluation(declared)
        ]
    (compared,) = scores
    features, labels = batch
    after = {name: os.path.join(folder, f"{index}.npy") for index, name in enumerate(names)}
    training = None
    with _called(estimator, checkpoint, ModeKeys.TRAIN, features, labels) as (spec, session, _):
        chance = draws(session.graph, spec.train_op)
        with session.graph.as_default():
            if steps is not None:
                training = look(session, spec.train_op, *steps)
                # `look` ran operations, which may have updated moving averages.
                tf.compat.v1.train.Saver().restore(session, checkpoint)
            variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
        session.run(spec.train_op)
        for name in after.keys() & variables:
            np.save(after[name], session.run(variables[name]))
    evaluated = Evaluated(declared, [each[compared] for each in found])
    return Answers(compared, evaluated, batch, after, chance, training)


def compare_answers(answers: Answers, evaluated: KerasClassifier, declared: DeclaredInput, exported: str) -> Proof:
    """Compares the Keras model's outputs with the Estimator's and with those of the exported model.

    Args:
        evaluated: The model in the precision of evaluation and serving.
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


def compare_step(
    proof: Proof, answers: Answers, model: KerasClassifier, placed: Sequence[Placed], reader: tf.train.CheckpointReader
) -> Proof:
    """Adds the comparison of the next training step, which it runs on the model.

    Args:
        reader: Reader of the checkpoint.

    Raises:
        UserCodeError: Only one side has random operations.
    """
    train_step = tf.function(model.train_step)
    layers = {each.name for each in model.network._flatten_layers(include_self=False)}
    drawn = draws(train_step.get_concrete_function(answers.batch).graph)
    chance = sorted({next((part for part in each.split("/") if part in layers), each) for each in drawn})
    if bool(chance) != bool(answers.chance):
        raise UserCodeError(
            f"the model_fn draws random numbers in {', '.join(answers.chance) or 'nothing'}, and the network in "
            f"{', '.join(chance) or 'nothing'}",
            expected="a layer of the network, such as Dropout, for each random one of the model_fn",
            todo="change the network to train as the model_fn does",
        )
    if chance:
        return dataclasses.replace(proof, chance=chance)
    step = Step()
    train_step(answers.batch)
    for each in placed:
        group = each.tensor.slot if each.tensor.kind == SLOT else "trained" if each.variable.trainable else "other"
        old, new = np.load(answers.after[each.tensor.name]), each.variable.numpy()
        step.add(each.tensor.kind, group, reader.get_tensor(each.tensor.name), old, new)
    parts = {kind: value for kind, value in step.parts.items() if kind != STEP}
    return dataclasses.replace(proof, next_step=dict(step.largest), parts=parts)


def _scores(spec: tf.estimator.EstimatorSpec) -> dict[str, tf.Tensor]:
    """Returns the output of a model_fn to compare, by its name."""
    served = (spec.export_outputs or {}).get("serving_default")
    for given in (spec.predictions, getattr(served, "outputs", None)):
        for key in (LOGITS, PROBABILITIES):
            if isinstance(given, Mapping) and key in given:
                return {key: given[key]}
    raise UserCodeError(
        "the predictions of the model_fn contain neither logits nor probabilities",
        expected=f"an entry {LOGITS} or {PROBABILITIES}, [batch, classes], in predictions or in serving_default",
        todo="add it; it does not change the training",
    )


def _answer(model: KerasClassifier, features: Features, key: str) -> np.ndarray:
    logits = model(features, training=False)
    return (logits if key == LOGITS else tf.nn.softmax(logits)).numpy()


def _evaluation(declared: DeclaredInput) -> Iterator[tuple[Features, np.ndarray]]:
    return iter(declared.reader.input_fn(ModeKeys.EVAL).as_numpy_iterator())


@contextlib.contextmanager
def _called(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    mode: str,
    features: Features,
    labels: Optional[np.ndarray] = None,
) -> Iterator[tuple[tf.estimator.EstimatorSpec, tf.compat.v1.Session, dict[str, tf.Tensor]]]:
    """Calls a model_fn in a new graph for batches of this shape, and restores its variables from the checkpoint."""
    with tf.Graph().as_default() as graph:
        tf.compat.v1.train.create_global_step()
        # The last batch of an evaluation is smaller.
        sizes = {name: each.shape if labels is not None else (None, *each.shape[1:]) for name, each in features.items()}
        given = {name: tf.compat.v1.placeholder_with_default(each, sizes[name]) for name, each in features.items()}
        spec = estimator.model_fn(given, None if labels is None else tf.constant(labels), mode, estimator.config)
        local = [tf.compat.v1.local_variables_initializer(), tf.compat.v1.tables_initializer()]
        saver = tf.compat.v1.train.Saver()
    with contextlib.closing(tf.compat.v1.Session(graph=graph)) as session:
        with graph.as_default():
            session.run(local)
            saver.restore(session, checkpoint)
        # Outside of the graph, since batches are read eagerly.
        yield spec, session, given


def not_equal(proof: Proof, todo: str) -> NotEqualError:
    """Returns the error for a proof that does not hold."""
    found = [f"{proof.compared} of the {name}: {value:.3g}" for name, value in proof.logits.items()]
    found += [f"{name} after the next step: {value:.3g}" for name, value in proof.next_step.items()]
    found += [f"{name}, as a part of that step: {value:.3g}" for name, value in proof.parts.items()]
    found += [f"predicted classes that differ: {proof.classes} of {proof.examples}"]
    return NotEqualError(
        "\n".join(["the Keras model differs from the Estimator: largest differences", *found]),
        expected=f"at most {MOST:g}, {MOST_OF_STEP:g} of the step, and the same classes; so nothing was written",
        todo=todo,
    )
