"""Predicts the class of every evaluation example with each model, in a separate process, and computes the metrics."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection, expand_metrics
from tfx_estimator.pipeline.config.task import CLASSES, Task
from tfx_estimator.pipeline.experiments.compare.candidates import Candidate
from tfx_estimator.pipeline.report.artifacts import Outputs, need
from tfx_estimator.pipeline.report.page import LeftOutError
from tfx_estimator.pipeline.user_source import loader

_PROGRAM = "from tfx_estimator.pipeline.experiments.compare import answers; answers.main(*sys.argv[1:])"
# Variables in a checkpoint that are not the model's.
_NO_PARAMETERS = ("global_step", "save_counter", "_CHECKPOINTABLE_OBJECT_GRAPH", ".OPTIMIZER_SLOT")

_METRICS = "evaluator.metrics"
_PREDICTION, _LABEL = "prediction", "label"
# An option of metrics that read further features.
_OF_FEATURES = "feature_key_path"
_OF_BLESSING = ("threshold", "change_threshold", "slices")
# Metrics that every candidate has anyway.
_BUILT_IN = ("sparse_categorical_accuracy", "sparse_categorical_crossentropy", "example_count")


@dataclass(frozen=True)
class Model:
    """The model of a candidate."""

    candidate: Candidate
    outputs: Outputs
    split: str  # the evaluated one
    cached: bool  # whether it was trained before

    @property
    def name(self) -> str:
        """The candidate's label."""
        return self.candidate.label


@dataclass(frozen=True)
class Answers:
    """A model's predictions of the evaluation examples, and its size."""

    labels: np.ndarray  # the true classes; int64 [examples], or the numbers; float64
    probabilities: np.ndarray  # float32 [examples, classes]; of a regression the numbers, float64 [examples, 1]
    output: str  # name of the served output
    model_bytes: int  # of the SavedModel's files
    parameters: int  # numbers in its variables
    notes: Sequence[str] = field(default_factory=list)  # a sentence each
    metrics: Mapping[str, float] = field(default_factory=dict)  # the declared ones, by the Evaluator's names

    @property
    def predicted(self) -> np.ndarray:
        """The predicted classes, int64 [examples]; or numbers, float64."""
        return self.probabilities.argmax(axis=1) if self.probabilities.shape[1] > 1 else self.probabilities[:, 0]

    def take(self, order: np.ndarray) -> Answers:
        """Returns the answers in another order: the present index of each example, int64 [examples]."""
        return replace(self, labels=self.labels[order], probabilities=self.probabilities[order])


def answer(model: Model, folder: str, log: str, metrics: Sequence[Mapping[str, Any]] = ()) -> Answers:
    """Predicts all evaluation examples with the exported model, in a fresh process.

    Args:
        folder: For temporary files.
        log: File of the process's output, which is this process's stdout.

    Raises:
        TfxEstimatorError: The model's outputs cannot be compared, or the process ended without a result.
    """
    task, result_file = os.path.join(folder, "task"), os.path.join(folder, "result")
    declared = model.candidate.values.get("evaluator.prediction_key")
    write_whole(task, pickle.dumps((model.outputs, model.split, declared, list(metrics))))
    command = [*loader.fresh_python(_PROGRAM), task, result_file]
    environment = {**os.environ, "PYTHONPATH": loader.python_path()}
    code = subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, check=False).returncode
    if not os.path.exists(result_file):
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise PipelineError(
            f"the process that predicts the evaluation examples {how}",
            expected="a model that can be loaded, and memory for it",
            todo=f"see {log}",
        )
    with open(result_file, "rb") as file:
        result = pickle.load(file)
    if isinstance(result, TfxEstimatorError):
        raise result
    return result


def main(task: str, result_file: str) -> None:
    """Entry point of the child process: reads the task from a file, and writes Answers or an error to another."""
    with open(task, "rb") as file:
        arguments = pickle.load(file)
    result: Answers | TfxEstimatorError
    try:
        result = _predict(*arguments)
    except LeftOutError as reason:
        expected = "a model that serves scores of the classes for tf.Examples, and its evaluation examples"
        result = DeclarationError(str(reason), expected=expected, todo="leave it out")
    except TfxEstimatorError as error:
        result = error
    write_whole(result_file, pickle.dumps(result))


def _predict(outputs: Outputs, split: str, declared: str | None, metrics: Sequence[Mapping[str, Any]]) -> Answers:
    import tensorflow as tf
    from tfx.utils import path_utils

    from tfx_estimator.pipeline.report.examples import open_data
    from tfx_estimator.pipeline.report.predictions import predict

    data = open_data(outputs)
    found = predict(outputs, data, split, declared, most=-1, seconds=math.inf)
    saved = path_utils.serving_model_path(need(outputs, "Trainer", "model").uri)
    files = [os.path.join(path, name) for path, _, names in os.walk(saved) for name in names]
    variables = tf.train.list_variables(os.path.join(saved, "variables", "variables"))
    parameters = [shape for name, shape in variables if not any(part in name for part in _NO_PARAMETERS)]
    labels, probabilities = found.labels, found.probabilities
    if data.is_regression and metrics:
        found.notes.append("Of a regression, `evaluator.metrics` are not measured here: `run` does.")
        metrics = ()
    measured, notes = (
        measure_all(metrics, labels, probabilities, data.names, found.of_two or data.is_binary) if metrics else ({}, [])
    )
    return Answers(
        labels,
        probabilities,
        found.output,
        sum(map(os.path.getsize, files)),
        sum(map(math.prod, parameters)),
        [*found.notes, *notes],
        measured,
    )


def declared_metrics(candidates: Sequence[Candidate]) -> list[Mapping[str, Any]]:
    """Returns the metrics that any candidate declares, without thresholds."""
    found: list[Mapping[str, Any]] = []
    for candidate in candidates:
        for metric in expand_metrics(candidate.values.get(_METRICS) or ()):
            bare = {key: value for key, value in metric.items() if key not in _OF_BLESSING}
            if bare not in found and _OF_FEATURES not in (bare.get("options") or {}):
                found.append(bare)
    return found


def measure_all(
    metrics: Sequence[Mapping[str, Any]], labels: np.ndarray, probabilities: np.ndarray, *rest: Any
) -> tuple[dict[str, float], list[str]]:
    """Computes the metrics that fit the model's outputs; returns them, and notes on the others."""
    try:
        return measure(metrics, labels, probabilities, *rest), []
    except Exception:  # TFMA and Keras raise various errors for a metric that does not fit
        found: dict[str, float] = {}
        notes = []
        for metric in metrics:
            try:
                found |= measure([metric], labels, probabilities, *rest)
            except Exception as error:
                # Beam appends lines; the first one is the error's.
                why = (str(error).strip() or type(error).__name__).splitlines()[0]
                notes.append(f"The metric {metric['name']} was not measured: {why}")
        return found, notes


def measure(
    metrics: Sequence[Mapping[str, Any]],
    labels: np.ndarray,
    probabilities: np.ndarray,
    label_names: Sequence[str],
    of_two: bool = False,
) -> dict[str, float]:
    """Computes metrics in this process; returns them by the Evaluator's names.

    Args:
        labels: int64 [examples].
        probabilities: float32 [examples, classes].
        of_two: Whether the model serves one score, of the second of two classes.
    """
    import pandas as pd
    import tensorflow_model_analysis as tfma

    from tfx_estimator.components.evaluator.completion import complete
    from tfx_estimator.components.evaluator.eval_config import eval_config
    from tfx_estimator.components.served_outputs import Scores
    from tfx_estimator.pipeline.run.results import scalar_metrics

    config = eval_config(
        EvaluatorSection.parse_obj({"metrics": metrics, "slices": ()}), Task(CLASSES, _LABEL, tuple(label_names))
    )
    for each in config.metrics_specs:
        for metric in each.metrics:
            metric.ClearField("per_slice_thresholds")
    complete(config, Scores(_PREDICTION, of_two=of_two), None)
    config.model_specs[0].label_key = _LABEL
    predictions = probabilities[:, 1] if of_two else list(probabilities)
    data = pd.DataFrame({_LABEL: labels, _PREDICTION: predictions})
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as folder:
        found = tfma.analyze_raw_data(data, config, folder)
        (overall,) = (values for key, values in found.slicing_metrics if not key)
    return {name: value for name, value in scalar_metrics(overall) if name not in _BUILT_IN}
