"""Compares an Estimator with the Keras model converted from it: their outputs, and the next training steps."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.declared_input import DeclaredInput
from tfx_estimator.model_fn.bridge.differences import difference
from tfx_estimator.model_fn.bridge.draws import Draws
from tfx_estimator.model_fn.bridge.proof import Proof
from tfx_estimator.model_fn.bridge.steps import STEPS, Trained, compare, opened, train
from tfx_estimator.model_fn.bridge.tensors import Reader
from tfx_estimator.model_fn.bridge.training_graph import Training, look
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.user_models.keras_model import LOGITS, PROBABILITIES
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.convert.placing import Placed

Features = dict[str, np.ndarray]


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
        trained: After the next steps.
        served: Values of weights that it serves but does not train, by the weight's name.
        training: Read from the graph of a whole model_fn; None for a network.
    """

    compared: str
    batches: Evaluated
    trained: Trained
    served: dict[str, np.ndarray]
    training: Optional[Training] = None


def next_batches(declared: DeclaredInput) -> Iterator[tuple[Features, np.ndarray]]:
    """Reads the batches of the next steps."""
    return itertools.islice(declared.reader.input_fn(ModeKeys.TRAIN).as_numpy_iterator(), STEPS)


def run_estimator(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    reader: Reader,
    declared: DeclaredInput,
    folder: str,
    steps: Optional[tuple[int, int]] = None,
) -> Answers:
    """Runs the Estimator's evaluation and its next training steps.

    It must run before a Keras model is created: one that is created in a graph breaks those that were not.

    Args:
        reader: Reads the checkpoint.
        declared: Its reader begins at the checkpoint's step.
        folder: For files.
        steps: For a whole model_fn, whose graph is read: the checkpoint's step, and the last of the training.
    """
    (first, labels), (given, _) = next(next_batches(declared)), next(_evaluation(declared))
    graph, spec, inputs, _ = _called(estimator, ModeKeys.PREDICT, given)
    with graph.as_default():
        session = opened(spec, checkpoint)
        variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
    scores = _scores(spec)
    found = [
        session.run(scores, {inputs[name]: each for name, each in features.items()})
        for features, _ in _evaluation(declared)
    ]
    served = {
        name: value
        for name in reader.get_variable_to_shape_map().keys() & variables
        if not np.array_equal(value := session.run(variables[name]), reader.get_tensor(name))
    }
    session.close()
    (compared,) = scores
    draws, training = Draws(), None
    with draws.fixed():
        graph, spec, inputs, answer = _called(estimator, ModeKeys.TRAIN, first, labels)
    if steps is not None:
        # Reading runs operations, which may update moving averages.
        with graph.as_default(), opened(spec, checkpoint) as session:
            training = look(session, spec.train_op, *steps)

    def feeds() -> Iterator[dict[Any, np.ndarray]]:
        for features, labels in next_batches(declared):
            yield {answer: labels, **{inputs[name]: each for name, each in features.items()}}

    trained = train(graph, spec, checkpoint, feeds, draws, folder)
    return Answers(compared, Evaluated(declared, [each[compared] for each in found]), trained, served, training)


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
    return Proof(examples, dict(worst), classes, served=sorted(answers.served), compared=compared)


def compare_steps(
    proof: Proof, answers: Answers, model: KerasClassifier, placed: Sequence[Placed], reader: Reader
) -> Proof:
    """Adds the comparison of the next training steps, which it runs on the model.

    Args:
        reader: Reader of the checkpoint.
    """
    train_step, variables = tf.function(model.train_step), {each.place: each.variable for each in placed}
    moved, batches = answers.trained.tensors(placed, reader), next_batches(answers.batches.declared)
    found = compare(answers.trained, moved, lambda batch: train_step(batch)["loss"], batches, variables)
    return dataclasses.replace(proof, **found)


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


def _called(
    estimator: tf.estimator.Estimator, mode: str, features: Features, labels: Optional[np.ndarray] = None
) -> tuple[tf.Graph, tf.estimator.EstimatorSpec, dict[str, tf.Tensor], Optional[tf.Tensor]]:
    """Calls a model_fn in a new graph for batches of this shape; returns its placeholders, too."""
    with tf.Graph().as_default() as graph:
        tf.compat.v1.train.create_global_step()
        # The last batch of an evaluation is smaller.
        sizes = {name: each.shape if labels is not None else (None, *each.shape[1:]) for name, each in features.items()}
        given = {name: tf.compat.v1.placeholder_with_default(each, sizes[name]) for name, each in features.items()}
        answer = None if labels is None else tf.compat.v1.placeholder_with_default(labels, labels.shape)
        return graph, estimator.model_fn(given, answer, mode, estimator.config), given, answer
