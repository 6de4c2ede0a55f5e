"""One trial: a supervised training with its values, in a folder of its own."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts, standard_component_specs
from tfx.utils import io_utils

from tfx_estimator.components import read_files
from tfx_estimator.components.files import DECLARATION, write_whole
from tfx_estimator.components.in_python import TUNER, reword
from tfx_estimator.components.trainer.jobs import logs_folder, make_job, supervise, write_declaration
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.settling import (
    count_labels,
    with_counts,
    with_hyperparameters,
    with_length,
    with_steps,
    write_config,
)
from tfx_estimator.components.trainer.supervisor.outcome import Outcome
from tfx_estimator.components.tuner.trials import BEGUN, COMPLETED, FAILED, Result, Trial, forget
from tfx_estimator.pipeline.base.errors import StoppedError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.put_values import show_value
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune import HYPERBAND, TuneSection

_TRAINING, _HYPERPARAMETERS = "training", "hyperparameters"
# Marks a complete copy of the training that a trial continues.
_COPIED = "copied"
# Kept of a trial's training: TensorBoard's events, logs, the declaration and the evaluations.
_EVENTS, _LOGS, _KEPT = "events.out.tfevents", "logs", (DECLARATION, "evaluations.json")

logger = get_logger("tuner")


@dataclasses.dataclass(frozen=True)
class Trials:
    """Trains trials.

    Args:
        folder: The tuning's folder, which outlives one execution.
        exec_properties: Those of a Trainer; likewise the settings.
        has_ended: Returns True if running trials are to stop.
    """

    folder: str
    inputs: Mapping[str, list[types.Artifact]]
    exec_properties: Mapping[str, Any]
    settings: Settings
    section: TuneSection
    has_ended: Callable[[], bool] = lambda: False

    @functools.cached_property
    def _labels(self) -> Mapping[int, int]:
        """Counts the labels once for all trials, as that reads all examples."""
        return count_labels(self.inputs[standard_component_specs.EXAMPLES_KEY], self.settings.task.label)

    def place(self, number: int) -> str:
        """Returns the folder of a trial."""
        return os.path.join(self.folder, "trials", f"{number:04d}")

    def training(self, number: int) -> str:
        """Returns the training folder of a trial."""
        return os.path.join(self.place(number), _TRAINING)

    def run(self, trial: Trial) -> Result:
        """Trains a trial, or returns its stored result; a failure is a result, but StoppedError is raised."""
        place = self.place(trial.number)
        if read_files.changes(read_files.of_training(self.training(trial.number))):
            _remove(place)
        known = Result.load(place)
        if known is not None and known.is_of(trial):
            return known
        previous = known or Result.load(place, BEGUN)
        if previous is not None and not previous.is_of(trial):
            # It would resume from weights that were trained with other values.
            _remove(place)
        self._begin(trial, place)
        started = time.monotonic()
        try:
            outcome = self._train(trial, place)
        except StoppedError:
            raise
        except TfxEstimatorError as error:
            if self.settings.declaration is None:
                reword(error, TUNER)
            seconds = time.monotonic() - started
            result = Result(trial.number, trial.values, FAILED, seconds=seconds, reason=str(error), parent=trial.parent)
        else:
            result = self._make_result(trial, outcome)
        if not self.has_ended():
            _write_events(os.path.join(place, _TRAINING), result)
            result.save(place)
            if result.status == COMPLETED and self.section.strategy != HYPERBAND:
                self.tidy(trial.number)
        return result

    def forget(self, number: int) -> None:
        """Removes a trial's result, so that it runs again from its last checkpoint."""
        forget(self.place(number))

    def tidy(self, number: int) -> None:
        """Removes the checkpoints and models of a trial that no other one continues."""
        if fileio.exists(training := self.training(number)):
            _tidy(training)

    def _begin(self, trial: Trial, place: str) -> None:
        """Makes the folder, with a copy of the parent's training if there is one."""
        fileio.makedirs(place)
        Result(trial.number, trial.values, "", parent=trial.parent).save(place, BEGUN)
        training = os.path.join(place, _TRAINING)
        if trial.parent is not None:
            copy_training(os.path.join(self.place(trial.parent), _TRAINING), training)
        fileio.makedirs(training)

    def _train(self, trial: Trial, place: str) -> Outcome:
        training = os.path.join(place, _TRAINING)
        tuned = standard_artifacts.HyperParameters()
        tuned.uri = os.path.join(place, _HYPERPARAMETERS)
        write_config(tuned.uri, trial.config)
        inputs = {**self.inputs, standard_component_specs.HYPERPARAMETERS_KEY: [tuned]}
        outputs: dict[str, list[types.Artifact]] = {}
        for key, kind in (
            (standard_component_specs.MODEL_KEY, standard_artifacts.Model),
            (standard_component_specs.MODEL_RUN_KEY, standard_artifacts.ModelRun),
        ):
            outputs[key] = [kind()]
            outputs[key][0].uri = os.path.join(place, key)
        settings, properties = _in_trial(self.settings, trial.steps), dict(self.exec_properties)
        if trial.steps is not None:
            properties = with_length(properties, trial.steps)
        settings, properties = with_hyperparameters(settings, properties, [tuned])
        declared = settings
        examples = inputs[standard_component_specs.EXAMPLES_KEY]
        settings, properties = with_counts(settings, properties, examples, lambda: self._labels)
        job = make_job(inputs, outputs, properties, settings, training, exports=False)
        if fileio.exists(job.evaluated_file):
            # Left by the parent trial, or by an attempt that died before writing its result.
            fileio.remove(job.evaluated_file)
        write_declaration(training, declared)
        with logs_folder(training) as logs:
            return supervise(job, logs, self.has_ended)

    def _make_result(self, trial: Trial, outcome: Outcome) -> Result:
        metric = self.section.objective.metric
        if metric not in outcome.metrics and not self.has_ended():
            raise UserCodeError(
                f"tune.objective.metric: the evaluation reports no `{metric}`",
                expected=f"one of {', '.join(sorted(outcome.metrics)) or 'the reported metrics'}",
                todo="name one of them, or add it to the metrics of your model",
            )
        score, reason = outcome.metrics.get(metric), ""
        if score is not None and not math.isfinite(score):
            # It might be the best of all, or mislead the oracle.
            score, reason = None, f"its evaluation reports {metric}: {score}, which cannot be compared"
        return Result(
            trial.number,
            trial.values,
            FAILED if reason else COMPLETED,
            score,
            outcome.metrics,
            outcome.last_step,
            outcome.seconds,
            reason,
            trial.parent,
        )


def copy_training(source: str, target: str) -> None:
    """Copies a training to continue from, once; a copy that was interrupted is repeated."""
    copied = f"{target}.{_COPIED}"
    if fileio.exists(copied):
        return
    # Not by a draft and a rename: object stores cannot move a folder in one step.
    io_utils.copy_dir(source, target)
    if fileio.exists(logs := os.path.join(target, _LOGS)):
        fileio.rmtree(logs)
    write_whole(copied, "")


def steps_of(settings: Settings, exec_properties: dict[str, Any], examples: list[types.Artifact]) -> Optional[int]:
    """Returns the Trainer's steps, with epochs converted; None if the end of its data ends it."""
    _, properties = with_steps(settings, exec_properties, examples)
    return json.loads(properties[standard_component_specs.TRAIN_ARGS_KEY]).get("num_steps") or None


def _remove(place: str) -> None:
    """Removes a trial; the record of its values last, so that checkpoints never lack it, even if this is killed."""
    training = os.path.join(place, _TRAINING)
    if fileio.exists(training):
        fileio.rmtree(training)
    if fileio.exists(copied := f"{training}.{_COPIED}"):
        fileio.remove(copied)
    fileio.rmtree(place)


def _in_trial(settings: Settings, steps: Optional[int]) -> Settings:
    if settings.declaration is None:
        return settings
    # From the declaration: its class weights are by class names.
    trainer = TrainerSection.parse_obj(settings.declaration["trainer"]).in_trial(steps)
    return settings.with_trainer(**trainer.dict())


def _write_events(training: str, result: Result) -> None:
    """Writes the values next to the curves, for TensorBoard's HParams."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, summary, summary_v2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    status = api_pb2.STATUS_SUCCESS if result.status == COMPLETED else api_pb2.STATUS_FAILURE
    writer = EventFileWriter(training)
    # HParams supports only numbers, strings and booleans.
    shown = {name: value if _is_single(value) else show_value(value) for name, value in result.values.items()}
    values = summary_v2.hparams_pb(shown, trial_id=str(result.number))
    for each in (values, summary.session_end_pb(status)):
        # Converted: one of them is TensorFlow's own class of the same message.
        writer.add_event(Event(summary=Summary.FromString(each.SerializeToString())))
    writer.close()


def _is_single(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _tidy(folder: str) -> None:
    for name in fileio.listdir(folder):
        path = os.path.join(folder, name.rstrip("/"))
        if fileio.isdir(path):
            if os.path.basename(path) != _LOGS:
                _tidy(path)
                # In a store an empty folder no longer exists.
                if fileio.exists(path) and not fileio.listdir(path):
                    fileio.rmtree(path)
        elif not name.startswith(_EVENTS) and name not in _KEPT:
            fileio.remove(path)
