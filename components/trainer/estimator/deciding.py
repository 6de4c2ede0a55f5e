"""Has an Estimator's evaluations decide what is exported, and when training is over: `trainer.best` says what."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.best.keeper import Keeper, is_declared
from tfx_estimator.components.trainer.damage import damage
from tfx_estimator.components.trainer.estimator import evaluation
from tfx_estimator.components.trainer.estimator.checkpoints import step_of
from tfx_estimator.components.trainer.protocol.events import ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import EVALUATOR
from tfx_estimator.components.trainer.task.context import TaskContext
from tfx_estimator.pipeline.base.stack.estimator import bring_back_estimator

bring_back_estimator()


class NoMoreEvaluationsError(Exception):
    """Ends an evaluator's task: training is over, and another task evaluates and exports what it leaves."""


class Deciding:
    """The evaluations of one task.

    Args:
        exporters: Of the user's EvalSpec: they export what is chosen.
    """

    def __init__(self, keeper: Keeper, exporters: Any) -> None:
        self._keeper = keeper
        self._exporters = tuple(exporters)

    @property
    def stops(self) -> bool:
        """Is training over before its last step."""
        return self._keeper.stops

    def evaluated_by(
        self, eval_spec: tf.estimator.EvalSpec, progress: ProgressWriter, task_type: str
    ) -> tf.estimator.EvalSpec:
        """Returns an EvalSpec by which each checkpoint is evaluated, and none is the last to be exported.

        Args:
            progress: Where to report.
            task_type: Of the task; an evaluator has a pace of its own.
        """
        exporters = [_NeverFinal(exporter) for exporter in self._exporters]
        if task_type == EVALUATOR:
            exporters.append(_Leave(self._keeper))
        else:
            eval_spec = eval_spec._replace(start_delay_secs=0, throttle_secs=0)
        reporter = evaluation.MetricsReporter(progress, self._keeper)
        return eval_spec._replace(exporters=(reporter, *exporters))

    def check_metrics(self, estimator: tf.estimator.Estimator, eval_spec: tf.estimator.EvalSpec) -> None:
        """Checks, before anything is trained, that the evaluations will report what is declared.

        Args:
            estimator: The Estimator.
            eval_spec: The user's, or as of `evaluated_by`.

        Raises:
            UserCodeError: They will not.
        """
        self._keeper.check_metrics(lambda: evaluation.metric_names(estimator, eval_spec))

    def catch_up(self, estimator: tf.estimator.Estimator, eval_spec: tf.estimator.EvalSpec) -> None:
        """Evaluates the checkpoint that training goes on from, if a process that was ended had still to do so."""
        if checkpoint := estimator.latest_checkpoint():
            self._keeper.go_on_from(step_of(checkpoint))
            self._evaluate(estimator, eval_spec, checkpoint)

    def export(self, estimator: tf.estimator.Estimator, eval_spec: tf.estimator.EvalSpec) -> str:
        """Exports the chosen checkpoint.

        Args:
            estimator: The trained Estimator.
            eval_spec: As of `evaluated_by`.

        Returns:
            Path of the checkpoint.

        Raises:
            ExportError: Training left none.
        """
        last = evaluation.last_checkpoint(estimator)
        self._evaluate(estimator, eval_spec, last)
        chosen = self._keeper.choose(last, step_of(last))
        metrics = {**chosen.metrics, "global_step": chosen.step}
        evaluation.export_all(estimator, self._exporters, chosen.checkpoint, metrics)
        return chosen.checkpoint

    def _evaluate(self, estimator: tf.estimator.Estimator, eval_spec: tf.estimator.EvalSpec, checkpoint: str) -> None:
        if not self._keeper.knows(step_of(checkpoint)):
            evaluation.evaluate(estimator, eval_spec)


def deciding(context: TaskContext, eval_spec: tf.estimator.EvalSpec) -> Optional[Deciding]:
    """Makes what decides by a task's evaluations; None where nothing is declared."""
    section = context.settings.trainer
    if section is None or not is_declared(section):
        return None
    keeper = Keeper(context.job.training_dir, section, damage, context.progress)
    return Deciding(keeper, eval_spec.exporters)


class EarlyStopHook(tf.compat.v1.train.SessionRunHook):
    """Ends training at the checkpoint whose evaluation says so: savers come before the hooks of a TrainSpec."""

    def __init__(self, decides: Deciding) -> None:
        self._decides = decides

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Looks."""
        if self._decides.stops:
            run_context.request_stop()


class _NeverFinal(tf.estimator.Exporter):
    """Has an exporter of the user's export what it does while training, and leave the final export for later."""

    def __init__(self, exporter: tf.estimator.Exporter) -> None:
        self._exporter = exporter

    @property
    def name(self) -> str:
        """Of the exporter."""
        return self._exporter.name

    def export(self, *args: Any, is_the_final_export: bool, **kwargs: Any) -> Any:
        """See tf.estimator.Exporter."""
        return self._exporter.export(*args, is_the_final_export=False, **kwargs)


class _Leave(tf.estimator.Exporter):
    """Exports nothing: it ends the evaluations as soon as training is over."""

    name = "tfx_estimator_leave"

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def export(self, *args: Any, **kwargs: Any) -> None:
        """See NoMoreEvaluationsError."""
        if self._keeper.stops:
            raise NoMoreEvaluationsError
