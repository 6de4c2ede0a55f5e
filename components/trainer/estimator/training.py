"""Trains, evaluates and exports an Estimator in one task, with the hooks for progress, stopping and profiling."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.best.keeper import Keeper, is_declared
from tfx_estimator.components.trainer.checkpoint import damage, step_of
from tfx_estimator.components.trainer.estimator import evaluation
from tfx_estimator.components.trainer.estimator.hooks import (
    AdditionsHook,
    EvaluationHook,
    FitHook,
    ObserverHook,
    ObserverListener,
    StopRequest,
    UnmovedStep,
    measured,
)
from tfx_estimator.components.trainer.estimator.recorded_params import OPTIMIZER_KEY, unread_params
from tfx_estimator.components.trainer.job import TaskContext
from tfx_estimator.components.trainer.observers import Observer, Reporter
from tfx_estimator.components.trainer.profiling.profiler import Profiler
from tfx_estimator.components.trainer.protocol.events import Event, StoppedByRequestError, is_over
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, PS
from tfx_estimator.pipeline.base.errors import UserCodeError

# First event of tasks that wait for others.
_WAITING = {PS: Event.SERVING, EVALUATOR: Event.WAITING}


def train_and_evaluate(spec: dict[str, Any], context: TaskContext) -> Optional[str]:
    """Trains to `max_steps`; evaluates and exports a checkpoint if this task does so.

    Args:
        spec: A trainer_fn's result, with the strategies of this task.

    Returns:
        Path of the exported checkpoint: the last one, or the best; None if none was exported.
    """
    task, progress = context.task, context.progress
    spec = measured(spec, task)
    if _in_step(context) and spec["train_spec"].saving_listeners:
        raise UserCodeError(
            "TensorFlow does not call the saving_listeners of a TrainSpec under multi_worker_mirrored",
            expected="a TrainSpec without saving_listeners",
            todo="use a SessionRunHook instead, or train with another strategy",
        )
    if task.type == CHIEF:
        _report_scaling(spec, context)
    section, keeper = context.settings.trainer, None
    if section is not None and is_declared(section) and task.evaluates:
        keeper = Keeper(context.job.training_dir, section, damage, progress)
    training = _Training(spec, context, StopRequest(task.stop_file), keeper)
    train_spec, eval_spec = training.train_spec(), training.eval_spec()
    if task.type in _WAITING:
        progress.write(_WAITING[task.type])
    # An exporter must not train: TensorFlow would run any steps that the cluster has left out.
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
    """Returns True if the tasks of a cluster train synchronously."""
    return context.distribution.train.is_collective and context.task.in_cluster


def _report_scaling(spec: dict[str, Any], context: TaskContext) -> None:
    """Reports how the number of replicas scales the declared learning rate."""
    if (optimizer := spec.get(OPTIMIZER_KEY)) and optimizer.scaling != "none":
        strategy = spec["estimator"].config.train_distribute
        replicas = strategy.num_replicas_in_sync if strategy else 1
        context.progress.write(Event.SCALED, text=optimizer.describe_scaled(replicas))


@dataclass(frozen=True)
class _Training:
    """The training and evaluation of one task.

    Args:
        spec: A trainer_fn's result, with the measurement of `bench` if there is one.
        keeper: Decides which checkpoint is exported, and when training ends; None if neither is declared, or another
            task evaluates.
    """

    spec: dict[str, Any]
    context: TaskContext
    stop: StopRequest
    keeper: Optional[Keeper]

    @property
    def estimator(self) -> tf.estimator.Estimator:
        """The Estimator of the spec."""
        return self.spec["estimator"]

    @property
    def ended(self) -> bool:
        """True if an evaluation has ended the training."""
        return bool(self.keeper and self.keeper.stops)

    def train_spec(self) -> tf.estimator.TrainSpec:
        """Returns the user's TrainSpec with our hooks and listeners appended."""
        given: tf.estimator.TrainSpec = self.spec["train_spec"]
        context, observers = self.context, self._observers()
        profiler = Profiler.of(context.settings.section, context.job.training_dir, context.task, context.progress)
        profilers = [profiler] if profiler else []
        alone = not context.distribution.train.asynchronous
        hooks = [*given.hooks, ObserverHook(observers, alone, _in_step(context))]
        if context.settings.goes_on:
            hooks.append(FitHook(self.estimator.model_dir))
        if profiler:
            # `alone` stays True: each asynchronous worker profiles by its own count of steps.
            hooks.append(ObserverHook(profilers))
        section = context.settings.built_in
        if section and section.tensorboard.is_declared and context.task.type == CHIEF:
            folder, every = self.estimator.model_dir, section.checkpoint_steps
            hooks.append(AdditionsHook(section.tensorboard, folder, given.input_fn, every, alone))
        # In a cluster a checkpoint's step may come from another task, and TensorFlow may call no listener.
        own = [] if context.task.in_cluster else [ObserverListener([*observers, *profilers])]
        return given._replace(hooks=hooks, saving_listeners=(*given.saving_listeners, *own))

    def _observers(self) -> Sequence[Observer]:
        context, task, total = self.context, self.context.task, self.spec["train_spec"].max_steps
        observers: list[Optional[Observer]] = [Reporter(context.progress, total and int(total)), self.stop]
        # Without max_steps the end of the input, or a user's hook, ends training.
        if total is not None:
            observers.append(UnmovedStep(total, alone=not context.distribution.train.asynchronous))
        if task.type == CHIEF:
            observers.append(unread_params(self.spec, context.settings, context.progress))
        return [each for each in (*observers, self.keeper) if each]

    def eval_spec(self) -> tf.estimator.EvalSpec:
        """Returns the user's EvalSpec with our hooks and exporters, and the declared delays."""
        given: tf.estimator.EvalSpec = self.spec["eval_spec"]
        progress, distribution = self.context.progress, self.context.distribution
        leaves = self.context.task.type == EVALUATOR
        exporters = [evaluation.NeverFinal(each) for each in given.exporters] if self.keeper else given.exporters
        reporter = evaluation.MetricsReporter(progress, self.keeper, leaves)
        hooks = (*given.hooks, EvaluationHook(progress, self.stop))
        given = given._replace(exporters=(*exporters, reporter), hooks=hooks)
        if distribution.evaluator:
            return given._replace(
                start_delay_secs=distribution.start_delay_secs, throttle_secs=distribution.seconds_between_evaluations
            )
        if self.keeper:
            return given if leaves else given._replace(start_delay_secs=0, throttle_secs=0)
        return given._replace(throttle_secs=distribution.throttle_secs) if distribution.throttle_secs else given

    def run(self, train_spec: tf.estimator.TrainSpec, eval_spec: tf.estimator.EvalSpec) -> None:
        """Trains and evaluates, as this task's type requires, until training has ended or a request to stop."""
        task = self.context.task
        if self.keeper:
            self.keeper.check_metrics(functools.partial(evaluation.metric_names, self.estimator, eval_spec))
            if task.type != EVALUATOR and (checkpoint := self.estimator.latest_checkpoint()):
                self.keeper.resume_from(step_of(checkpoint))
                self._evaluate(eval_spec, checkpoint)
        while not self.ended:
            try:
                tf.estimator.train_and_evaluate(self.estimator, train_spec, eval_spec)
                break
            except evaluation.NoMoreEvaluationsError:
                break
            except (ValueError, tf.errors.OpError) as error:
                # The chief keeps only a few checkpoints, and may remove the one that is being evaluated.
                if task.type != EVALUATOR or not evaluation.was_overtaken(self.estimator, error):
                    raise
        if self.stop.stops and not is_over(task.stop_file):
            raise StoppedByRequestError

    def _evaluate(self, eval_spec: tf.estimator.EvalSpec, checkpoint: str) -> None:
        """Evaluates the last checkpoint, unless an earlier process has done so."""
        if self.keeper and not self.keeper.knows(step_of(checkpoint)):
            evaluation.evaluate(self.estimator, eval_spec)

    def finish(self, eval_spec: tf.estimator.EvalSpec) -> str:
        """Calls the exporters, unless TensorFlow did; returns the path of the exported checkpoint."""
        last, total = evaluation.last_checkpoint(self.estimator), self.spec["train_spec"].max_steps
        step = step_of(last)
        if total and step < total and not self.ended:
            text = f"at step {step:,} of {total:,}: a hook ended training, or its input ended"
            self.context.progress.write(Event.ENDED_EARLY, step=step, text=text)
        if not self.keeper:
            *exporters, reporter = eval_spec.exporters
            checkpoint, metrics = reporter.last
            # TensorFlow evaluates nothing if training had ended in an earlier run or in other tasks; and considers no
            # evaluation final if training ended before `max_steps`, by a hook or the end of its input.
            if checkpoint != last:
                evaluation.evaluate(self.estimator, eval_spec)
            elif not reporter.was_final:
                evaluation.export_all(self.estimator, exporters, checkpoint, metrics)
            return last
        self._evaluate(eval_spec, last)
        chosen = self.keeper.choose(last, step)
        metrics = {**chosen.metrics, "global_step": chosen.step}
        evaluation.export_all(self.estimator, self.spec["eval_spec"].exporters, chosen.checkpoint, metrics)
        return chosen.checkpoint
