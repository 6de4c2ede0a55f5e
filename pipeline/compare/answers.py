"""Asks each model for the class of every evaluation example, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.compare.candidates import Candidate
from tfx_estimator.pipeline.compare.measures import measure_all
from tfx_estimator.pipeline.report.artifacts import Output, Outputs, need
from tfx_estimator.pipeline.report.missing import LeftOutError
from tfx_estimator.pipeline.user_source import fresh_python

_PROGRAM = "from tfx_estimator.pipeline.compare import answers; answers.main(sys.argv[1])"
# Variables that a path keeps beside the model's own.
_NO_PARAMETERS = ("global_step", "save_counter", "_CHECKPOINTABLE_OBJECT_GRAPH", ".OPTIMIZER_SLOT")


@dataclass(frozen=True)
class Model:
    """The model of a candidate.

    Args:
        outputs: What its components made, by component and output.
        split: The one that is evaluated.
        cached: Was it trained before.
    """

    candidate: Candidate
    outputs: Outputs
    split: str
    cached: bool

    @property
    def name(self) -> str:
        """Of the candidate."""
        return self.candidate.name


@dataclass(frozen=True)
class Answers:
    """What a model says of the evaluation examples, and how large it is.

    Args:
        labels: The true classes; int64 [examples].
        probabilities: float32 [examples, classes].
        output: The served output that was read.
        notes: What to know of them; a sentence each.
        model_bytes: Of the SavedModel's files.
        parameters: Numbers in its variables.
        metrics: The declared ones, by the Evaluator's names.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    output: str
    model_bytes: int
    parameters: int
    notes: Sequence[str] = field(default_factory=list)
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def predicted(self) -> np.ndarray:
        """The predicted classes; int64 [examples]."""
        return self.probabilities.argmax(axis=1)

    def take(self, order: np.ndarray) -> Answers:
        """Returns them in another order.

        Args:
            order: Of each example its place now; int64 [examples].
        """
        values = {**self.__dict__, "labels": self.labels[order], "probabilities": self.probabilities[order]}
        return Answers(**values)


def answer(model: Model, folder: str, log: str, metrics: Sequence[Mapping[str, Any]] = ()) -> Answers:
    """Predicts all evaluation examples with the exported model, in a fresh process.

    Args:
        folder: For the files in between.
        log: Where what the process prints goes: this one's stdout.

    Raises:
        DeclarationError: The model serves nothing that can be compared.
        UserCodeError: None of its outputs can be scores.
        PipelineError: The process ended without an answer.
    """
    task = os.path.join(folder, "task.json")
    kept = [[node, output, asdict(each)] for (node, output), each in model.outputs.items()]
    declared = model.candidate.values.get("evaluator.prediction_key")
    asked = {"outputs": kept, "split": model.split, "declared": declared, "folder": folder, "metrics": list(metrics)}
    write_json(task, asked)
    environment = {**os.environ, "PYTHONPATH": fresh_python.python_path()}
    process = subprocess.Popen([*fresh_python.words(_PROGRAM), task], stdin=subprocess.DEVNULL, env=environment)
    try:
        code = process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    told = _read(os.path.join(folder, "told.json"))
    if told is None:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise PipelineError(
            f"the process that predicts the evaluation examples {how}",
            expected="a model that can be loaded, and memory for it",
            todo=f"see {log}",
        )
    if error := told.get("error"):
        kind = UserCodeError if error["users"] else DeclarationError
        raise kind(error["what"], expected=error["expected"], todo=error["todo"])
    with np.load(os.path.join(folder, "answers.npz")) as arrays:
        return Answers(arrays["labels"], arrays["probabilities"], **told)


def main(task: str) -> None:
    """The fresh process.

    Args:
        task: The file that says what to do.
    """
    with open(task, encoding="utf-8") as file:
        asked = json.load(file)
    outputs = {(node, output): Output(**each) for node, output, each in asked["outputs"]}
    told: dict[str, Any]
    try:
        told = _predict(outputs, asked["split"], asked["declared"], asked["folder"], asked["metrics"])
    except LeftOutError as reason:
        expected = "a model that serves scores of the classes for tf.Examples, and its evaluation examples"
        told = {"error": {"users": False, "what": str(reason), "expected": expected, "todo": "leave it out"}}
    except TfxEstimatorError as error:
        told = {"error": {"users": True, "what": error.what, "expected": error.expected, "todo": error.todo}}
    write_json(os.path.join(asked["folder"], "told.json"), told)


def _predict(
    outputs: Outputs, split: str, declared: str | None, folder: str, metrics: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    import tensorflow as tf
    from tfx.utils import path_utils

    from tfx_estimator.pipeline.report.examples import open_data
    from tfx_estimator.pipeline.report.predictions import predict

    data = open_data(outputs)
    found = predict(outputs, data, split, declared, most=-1, seconds=math.inf)
    np.savez(os.path.join(folder, "answers.npz"), labels=found.labels, probabilities=found.probabilities)
    saved = path_utils.serving_model_path(need(outputs, "Trainer", "model").uri)
    files = [os.path.join(path, name) for path, _, names in os.walk(saved) for name in names]
    variables = tf.train.list_variables(os.path.join(saved, "variables", "variables"))
    parameters = [shape for name, shape in variables if not any(part in name for part in _NO_PARAMETERS)]
    measured: dict[str, float] = {}
    notes: list[str] = []
    if metrics:
        measured, notes = measure_all(metrics, found.labels, found.probabilities, data.names, found.of_two)
    return {
        "output": found.output,
        "notes": [*found.notes, *notes],
        "model_bytes": sum(map(os.path.getsize, files)),
        "parameters": sum(map(math.prod, parameters)),
        "metrics": measured,
    }


def _read(path: str) -> Mapping[str, Any] | None:
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)
