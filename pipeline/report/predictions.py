"""Predicts the class of each evaluation example with the exported model, as the Evaluator does."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tfx.utils import path_utils

from tfx_estimator.components.served_outputs import Scores, choose_scores, read_outputs
from tfx_estimator.pipeline.report.artifacts import Outputs, need
from tfx_estimator.pipeline.report.evaluation import losses
from tfx_estimator.pipeline.report.examples import DataSet
from tfx_estimator.pipeline.report.page import LeftOutError

# Limits of the predictions.
MOST_EXAMPLES = 20_000
MOST_SECONDS = 30.0
WORST = 20
# Tolerance for a sum of probabilities in float32.
_CLOSE = 1e-3


@dataclass(frozen=True)
class Mistake:
    """An example whose class was predicted wrong, or whose number is far from the prediction."""

    position: int  # in the split, in the order of its files
    label: float
    predicted: float
    probability: float  # of the predicted class
    of_label: float  # probability of the true class
    loss: float  # of a regression the squared error, without probabilities
    content: bytes  # of the example, to show it


@dataclass(frozen=True)
class Predictions:
    """The model's predictions of the evaluation examples."""

    labels: np.ndarray  # the true classes, int64 [examples]; or numbers, float64
    probabilities: np.ndarray  # float32 [examples, classes]; of a regression the numbers, float64 [examples, 1]
    worst: list[Mistake]  # with the highest losses, in descending order
    output: str  # name of the served output
    notes: list[str] = field(default_factory=list)  # a sentence each
    of_two: bool = False  # whether the model serves one score, of the second of two classes


def predict(
    outputs: Outputs,
    data: DataSet,
    split: str,
    declared: str | None = None,
    most: int = MOST_EXAMPLES,
    seconds: float = MOST_SECONDS,
) -> Predictions:
    """Predicts the evaluation examples.

    Args:
        outputs: The run's; the evaluation names the model's signature and output.
        declared: The declared output, for a run without evaluation; None selects one that fits.
        most: Maximum number of examples; -1 is all.
        seconds: Time limit.
    """
    model_uri = need(outputs, "Trainer", "model").uri
    folder = path_utils.serving_model_path(model_uri)
    name, key = _evaluated(outputs)
    # Chooses the output like the Evaluator, if the evaluation does not name it.
    count = 1 if data.is_regression else len(data.names)
    scores_are = choose_scores(read_outputs(folder, name), key or declared, count)
    signature = tf.saved_model.load(folder).signatures[name]
    argument = _argument(signature)
    labels, scores = [], []
    notes: list[str] = []
    worst: list[Mistake] = []
    deadline, seen = time.monotonic() + seconds, 0
    for serialized, raw, truth in data.batches(split, most):
        got = signature(**{argument: tf.constant(serialized)})[scores_are.key].numpy()
        if data.is_regression:
            probabilities, note = got.reshape([len(truth), -1])[:, :1].astype(np.float64), ""
            worst += _farthest(seen, raw, truth, probabilities[:, 0])
        else:
            probabilities, note = to_probabilities(got, count, scores_are, not notes if seen else None)
            worst += _mistakes(seen, raw, truth, probabilities)
        worst = sorted(worst, key=lambda mistake: -mistake.loss)[:WORST]
        labels.append(truth)
        scores.append(probabilities)
        notes += [note] if note and note not in notes else []
        seen += len(truth)
        if time.monotonic() > deadline:
            break
    if not seen:
        raise LeftOutError("There are no evaluation examples.")
    if seen < (known := data.counts.get(split, seen)):
        notes.append(f"Only the first {seen:,} of the {known:,} evaluation examples were predicted.")
    return Predictions(np.concatenate(labels), np.concatenate(scores), worst, scores_are.key, notes, scores_are.of_two)


def _evaluated(outputs: Outputs) -> tuple[str, str | None]:
    """Returns the evaluated signature and its output; the output is None without an evaluation."""
    name, key = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY, None
    if evaluation := outputs.get(("Evaluator", "evaluation")):
        path = os.path.join(evaluation.uri, "eval_config.json")
        try:
            with tf.io.gfile.GFile(path) as file:
                specs = json.load(file)["evalConfig"]["modelSpecs"]
        except (OSError, ValueError, LookupError, tf.errors.OpError) as error:
            raise LeftOutError(f"{path} does not name the evaluated output of the model.") from error
        spec = next(each for each in specs if not each.get("isBaseline"))
        name, key = spec.get("signatureName") or name, spec.get("predictionKey") or None
    return name, key


def _argument(signature: Any) -> str:
    inputs = signature.structured_input_signature[1]
    if len(inputs) != 1 or next(iter(inputs.values())).dtype != tf.string:
        raise LeftOutError("The exported model does not read tf.Examples.")
    return next(iter(inputs))


def to_probabilities(
    got: np.ndarray, classes: int, scores: Scores, are_served: bool | None = None
) -> tuple[np.ndarray, str]:
    """Returns the served scores as probabilities, and a note about their conversion.

    Args:
        are_served: Whether the scores are probabilities, as found for the first batch; None decides by the values.
    """
    if not np.isfinite(got).all():
        raise LeftOutError(f"The served output {scores.key} holds NaN or infinite values.")
    if scores.of_two:
        second = got.reshape(-1, 1)
        if scores.from_logits:
            second = 1 / (1 + np.exp(-second))
        return np.concatenate([1 - second, second], axis=1), ""
    if got.ndim != 2 or got.shape[1] != classes:
        raise LeftOutError(
            f"The served output {scores.key} has the shape {list(got.shape[1:])} for each example, and not a score for "
            f"each of the {classes} classes."
        )
    if are_served is None:
        are_served = not scores.from_logits and got.min() >= 0 and np.abs(got.sum(axis=1) - 1).max() < _CLOSE
    if are_served:
        return got, ""
    powers = np.exp(got - got.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True), f"The probabilities are a softmax of the served {scores.key}."


def _mistakes(first: int, raw: np.ndarray, labels: np.ndarray, probabilities: np.ndarray) -> list[Mistake]:
    """Returns the worst mistakes of a batch."""
    predicted, entropies = probabilities.argmax(axis=1), losses(labels, probabilities)
    wrong = np.flatnonzero(predicted != labels)
    return [
        Mistake(
            first + int(index),
            int(labels[index]),
            int(predicted[index]),
            float(probabilities[index, predicted[index]]),
            float(probabilities[index, labels[index]]),
            float(entropies[index]),
            raw[index],
        )
        for index in wrong[np.argsort(-entropies[wrong], kind="stable")][:WORST]
    ]


def _farthest(first: int, raw: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> list[Mistake]:
    """Returns the examples of a batch whose numbers are farthest from the predicted ones."""
    squares = (predicted - labels) ** 2
    none = math.nan
    return [
        Mistake(
            first + int(index),
            float(labels[index]),
            float(predicted[index]),
            *(none, none, float(squares[index])),
            raw[index],
        )
        for index in np.argsort(-squares, kind="stable")[:WORST]
    ]
