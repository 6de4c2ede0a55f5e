"""What a task does with an Estimator and its specs: trains, evaluates, has the exporters export; under our hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.estimator import evaluation
from tfx_estimator.components.trainer.estimator.checkpoints import step_of
from tfx_estimator.components.trainer.estimator.deciding import (
    Deciding,
    EarlyStopHook,
    NoMoreEvaluationsError,
    deciding,
)
from tfx_estimator.components.trainer.estimator.hooks import EvaluationProgressHook, TrainingProgressHook
from tfx_estimator.components.trainer.estimator.measuring.measure_hook import measured
from tfx_estimator.components.trainer.estimator.recorded_params import OPTIMIZER_KEY, unread_hooks
from tfx_estimator.components.trainer.estimator.task_hooks import (
    FailFastHook,
    NoEvaluationHook,
    ProfileHook,
    ProfileListener,
    StepListener,
    StopHook,
    UnmovedStepHook,
)
from tfx_estimator.components.trainer.profiling.profiler import Profiler
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.stop import StoppedByRequestError, is_over
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, PS
from tfx_estimator.components.trainer.task.context import TaskContext
from tfx_estimator.pipeline.base.errors import UserCodeError

# What is reported by those that wait for others.
_QUIET = {PS: Event.SERVING, EVALUATOR: Event.WAITING}


def train_and_evaluate(spec: dict[str, Any], context: TaskContext) -> Optional[str]:
    """Trains to `max_steps`; evaluates and exports a checkpoint where that is this task's part.

    Args:
        spec: What a trainer_fn returned, for the strategies of this task.

    Returns:
        Path of the exported checkpoint: the last one, or the best; None if none was exported.

    Raises:
        UserCodeError: TensorFlow would not call what a TrainSpec brings; or evaluations do not report what is declared.
        StoppedByRequestError: The supervisor asked to stop, and the checkpoint is written.
    """
    task, progress = context.task, context.progress
    spec = measured(spec, task)
    if _in_step(context):
        _refuse_listeners(spec["train_spec"])
    if task.type == CHIEF:
        _tell_scaling(spec, context)
    training = _Training(
        spec=spec,
        context=context,
        stop=StopHook(task.stop_file, progress, alone=not context.distribution.train.asynchronous),
        profiler=Profiler.of(context.settings.section, context.job.training_dir, task, progress),
        decides=deciding(context, spec["eval_spec"]) if task.evaluates else None,
    )
    train_spec, eval_spec = training.train_spec(), training.eval_spec()
    if task.type in _QUIET:
        progress.write(_QUIET[task.type])
    # An exporter has nothing to train: whatever steps the cluster did, TensorFlow would do those that it thinks are
    # missing.
    if task.type != EXPORTER:
        training.run(train_spec, eval_spec)
        if task.in_cluster:
            progress.write(Event.TRAINED)
            return None
        if training.ended and task.type == EVALUATOR:
            # The cluster has yet to write its last checkpoint: an exporter follows.
            return None
    return training.finish(eval_spec)


def _in_step(context: TaskContext) -> bool:
    """Tells whether the tasks of a cluster do each step together."""
    return context.distribution.train.is_collective and context.task.in_cluster


def _refuse_listeners(train_spec: tf.estimator.TrainSpec) -> None:
    if train_spec.saving_listeners:
        raise UserCodeError(
            "TensorFlow calls no saving_listeners of a TrainSpec under multi_worker_mirrored",
            expected="a TrainSpec without saving_listeners",
            todo="do in a SessionRunHook what they do, or train with another strategy",
        )


def _tell_scaling(spec: dict[str, Any], context: TaskContext) -> None:
    """Reports what the replicas make of the declared learning rate."""
    if (optimizer := spec.get(OPTIMIZER_KEY)) and optimizer.scaling != "none":
        strategy = spec["estimator"].config.train_distribute
        replicas = strategy.num_replicas_in_sync if strategy else 1
        context.progress.write(Event.SCALED, text=optimizer.word_scaled(replicas))


@dataclass(frozen=True)
class _Training:
    """What one task trains and evaluates with.

    Args:
        spec: What a trainer_fn returned, and what it is measured by.
        stop: Ends training where the supervisor asks for it.
        profiler: Of the declared steps; None if there are none.
        decides: On the checkpoint that is exported, and on when training is over; None where nothing is declared, or
            another task evaluates.
    """

    spec: dict[str, Any]
    context: TaskContext
    stop: StopHook
    profiler: Optional[Profiler]
    decides: Optional[Deciding]

    @property
    def estimator(self) -> tf.estimator.Estimator:
        """The Estimator that is trained."""
        return self.spec["estimator"]

    @property
    def ended(self) -> bool:
        """Has an evaluation ended the training."""
        return bool(self.decides and self.decides.stops)

    def train_spec(self) -> tf.estimator.TrainSpec:
        """Returns the user's TrainSpec with our hooks and listeners after his."""
        given: tf.estimator.TrainSpec = self.spec["train_spec"]
        hooks, listeners = (*given.hooks, *self._hooks()), (*given.saving_listeners, *self._listeners())
        return given._replace(hooks=hooks, saving_listeners=listeners)

    def _hooks(self) -> list[tf.compat.v1.train.SessionRunHook]:
        context, task, train = self.context, self.context.task, self.context.distribution.train
        total = self.spec["train_spec"].max_steps
        hooks: list[tf.compat.v1.train.SessionRunHook] = [TrainingProgressHook(context.progress, total), self.stop]
        # Without an end, the input's or a hook of the user's is the end.
        if total is not None:
            hooks.append(UnmovedStepHook(total, alone=not train.asynchronous))
        if task.type == CHIEF:
            hooks += unread_hooks(self.spec, context.settings, context.progress)
        if _in_step(context):
            hooks.append(FailFastHook())
        if self.profiler:
            hooks.append(ProfileHook(self.profiler))
        if self.decides:
            hooks.append(EarlyStopHook(self.decides))
        return hooks

    def _listeners(self) -> list[tf.compat.v1.train.CheckpointSaverListener]:
        if self.context.task.in_cluster:
            # A checkpoint's step may be that of another task; and TensorFlow may call no listener.
            return []
        profiled = [ProfileListener(self.profiler)] if self.profiler else []
        return [StepListener(self.context.progress), *profiled]

    def eval_spec(self) -> tf.estimator.EvalSpec:
        """Returns the user's EvalSpec with our hooks and exporters, and the declared pace."""
        given: tf.estimator.EvalSpec = self.spec["eval_spec"]
        progress, distribution = self.context.progress, self.context.distribution
        if self.decides:
            given = self.decides.evaluated_by(given, progress, self.context.task.type)
        else:
            given = given._replace(exporters=(*given.exporters, evaluation.MetricsReporter(progress)))
        given = given._replace(hooks=(*given.hooks, EvaluationProgressHook(progress), NoEvaluationHook(self.stop)))
        if distribution.evaluator:
            return given._replace(
                start_delay_secs=distribution.start_delay_secs, throttle_secs=distribution.seconds_between_evaluations
            )
        if distribution.throttle_secs and not self.decides:
            return given._replace(throttle_secs=distribution.throttle_secs)
        return given

    def run(self, train_spec: tf.estimator.TrainSpec, eval_spec: tf.estimator.EvalSpec) -> None:
        """Trains and evaluates, whichever of it is this task's part, until training is over.

        Args:
            train_spec: As of `train_spec`.
            eval_spec: As of `eval_spec`.

        Raises:
            StoppedByRequestError: The supervisor asked to stop, and the checkpoint is written.
        """
        task = self.context.task
        if self.decides:
            self.decides.check_metrics(self.estimator, eval_spec)
            if task.type != EVALUATOR:
                self.decides.catch_up(self.estimator, eval_spec)
        while not self.ended:
            try:
                tf.estimator.train_and_evaluate(self.estimator, train_spec, eval_spec)
                break
            except NoMoreEvaluationsError:
                break
            except (ValueError, tf.errors.OpError) as error:
                # The chief keeps a few checkpoints only, and may remove the one that is being evaluated.
                if task.type != EVALUATOR or not evaluation.was_overtaken(self.estimator, error):
                    raise
        if self.stop.stopped and not is_over(task.stop_file):
            raise StoppedByRequestError

    def finish(self, eval_spec: tf.estimator.EvalSpec) -> Optional[str]:
        """Has the exporters export, unless they did.

        Args:
            eval_spec: As of `eval_spec`.

        Returns:
            Path of the exported checkpoint.

        Raises:
            ExportError: Training left no checkpoint.
        """
        step, total = step_of(evaluation.last_checkpoint(self.estimator)), self.spec["train_spec"].max_steps
        if total and step < total and not self.ended:
            text = f"at step {step:,} of {total:,}: a hook ended training, or its input ended"
            self.context.progress.write(Event.ENDED_EARLY, step=step, text=text)
        if self.decides:
            return self.decides.export(self.estimator, eval_spec)
        evaluation.export_if_needed(self.estimator, eval_spec)
        return self.estimator.latest_checkpoint()
