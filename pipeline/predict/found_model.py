"""Location of the predicting model, and metadata from the run that trained it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.report.artifacts import Outputs, need
from tfx_estimator.pipeline.report.page import LeftOutError
from tfx_estimator.pipeline.report.report import read_run_outputs
from tfx_estimator.pipeline.report.source import find_runs

FILE = "saved_model.pb"
_SERVING = "Format-Serving"


@dataclass(frozen=True)
class FoundModel:
    """A SavedModel and its metadata.

    Args:
        labels: The classes' names, in the order of their scores; empty if unknown.
        image_shape: Height, width and channels of the training images; None if unknown.
        scores: The output that the declaration names; None chooses one.
        blessed: None if unknown.
    """

    folder: str
    labels: Sequence[str] = ()
    image_shape: Optional[tuple[int, int, int]] = None
    scores: Optional[str] = None
    blessed: Optional[bool] = None


def find(named: str) -> FoundModel:
    """Finds a SavedModel, the newest of a folder of versions, or that of a run.

    Raises:
        DeclarationError: It is none of these.
        PipelineError: The run has no model.
    """
    path = named if is_address(named) else os.path.abspath(os.path.expanduser(named))
    if folder := _saved_model(path):
        return FoundModel(folder)
    try:
        (run,) = find_runs([named])
    except DeclarationError as error:
        expected = f"a SavedModel, a folder of its versions such as RUNS/NAME/serving, or {error.expected}"
        todo = "name RUNS/NAME/serving for the model that was pushed, or RUNS/NAME for that of the latest run"
        raise DeclarationError(error.what, expected=expected, todo=todo) from error
    try:
        outputs = read_run_outputs(run)
        folder = _saved_model(need(outputs, "Trainer", "model").uri)
    except LeftOutError as error:
        raise _no_model(run.name, str(error)) from error
    if not folder:
        raise _no_model(run.name, "its Trainer exported none")
    labels, shape = _data_of(outputs)
    key = run.values.get("evaluator.prediction_key")
    return FoundModel(folder, labels or run.summary.get("label_names") or (), shape, key, run.summary.get("blessed"))


def _saved_model(path: str) -> str:
    """Returns the folder of a SavedModel; of several versions, the newest."""
    inner = os.path.join(path, _SERVING)
    folder = inner if tf.io.gfile.isdir(inner) else path
    try:
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)] if tf.io.gfile.isdir(folder) else []
    except tf.errors.OpError:
        return ""
    versions = sorted((name for name in names if name.isdigit()), key=int, reverse=True)
    places = [folder, *(os.path.join(folder, name) for name in versions)]
    return next((place for place in places if tf.io.gfile.exists(os.path.join(place, FILE))), "")


def _data_of(outputs: Outputs) -> tuple[Sequence[str], Optional[tuple[int, int, int]]]:
    """Returns the class names and the image shape of a run's training data."""
    examples = outputs.get(("TfdsExampleGen", "examples"))
    if examples is None:
        return (), None
    shape = examples.read_json("image_shape")
    return examples.read_json("label_names") or (), tuple(shape) if shape else None


def _no_model(name: str, why: str) -> PipelineError:
    return PipelineError(
        f"the run {name} has no model: {why}",
        expected="a run whose Trainer has finished",
        todo="run it to the end; or name another run, or a SavedModel",
    )
