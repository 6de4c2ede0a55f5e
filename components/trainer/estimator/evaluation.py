"""The final evaluation and export, and the exporters that wrap the user's."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer import export
from tfx_estimator.components.trainer.best.keeper import Keeper
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.pipeline.base.errors import ExportError

bring_back_estimator()


class NoMoreEvaluationsError(Exception):
    """Ends an evaluator's task: training has ended, and another task evaluates and exports the last checkpoint."""


class NeverFinal(tf.estimator.Exporter):
    """Wraps a user's exporter, so that it exports during training but makes no final export."""

    def __init__(self, exporter: tf.estimator.Exporter) -> None:
        self._exporter = exporter

    @property
    def name(self) -> str:
        """See tf.estimator.Exporter."""
        return self._exporter.name

    def export(self, *args: Any, is_the_final_export: bool, **kwargs: Any) -> Any:
        """See tf.estimator.Exporter."""
        return self._exporter.export(*args, is_the_final_export=False, **kwargs)


class MetricsReporter(tf.estimator.Exporter):
    """Reports the metrics of each evaluation to the supervisor and the keeper; exports nothing.

    Args:
        keeper: None unless evaluations during training decide what is exported, or when training ends.
        leaves: True if the task ends as soon as the keeper ends training.
    """

    name = "tfx_estimator_metrics"

    def __init__(self, progress: ProgressWriter, keeper: Optional[Keeper], leaves: bool) -> None:
        self._progress = progress
        self._keeper = keeper
        self._leaves = leaves
        # The last evaluation: its checkpoint and metrics, and whether TensorFlow considered it the final one.
        self.last: tuple[str, Mapping[str, Any]] = ("", {})
        self.was_final = False

    def export(
        self,
        estimator: tf.estimator.Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> None:
        """Reports the metrics of the evaluated checkpoint; raises NoMoreEvaluationsError if the task is to end."""
        # Scalars only: a metric may be a vector, such as precision_at_thresholds, which TensorBoard shows.
        scalars = {name: value for name, value in eval_result.items() if np.ndim(value) == 0 and name != "global_step"}
        values = {name: float(value) for name, value in scalars.items()}
        self.last, self.was_final = (checkpoint_path, eval_result), is_the_final_export
        step = int(eval_result["global_step"])
        self._progress.write(Event.EVALUATED, step=step, metrics=values)
        if self._keeper:
            self._keeper.evaluated(step, values, checkpoint_path)
            if self._leaves and self._keeper.stops:
                raise NoMoreEvaluationsError


def evaluate(estimator: tf.estimator.Estimator, eval_spec: tf.estimator.EvalSpec) -> None:
    """Evaluates the last checkpoint, and calls the exporters."""
    checkpoint = last_checkpoint(estimator)
    metrics = estimator.evaluate(eval_spec.input_fn, eval_spec.steps, hooks=eval_spec.hooks, name=eval_spec.name)
    export_all(estimator, eval_spec.exporters, checkpoint, metrics)


def metric_names(estimator: tf.estimator.Estimator, eval_spec: tf.estimator.EvalSpec) -> list[str]:
    """Returns the names of the scalars that an evaluation will report, from its graph, which is built and not run."""
    strategy = estimator._eval_distribution
    build = estimator._call_model_fn_eval_distributed if strategy else estimator._call_model_fn_eval
    with tf.Graph().as_default() as graph, strategy.scope() if strategy else contextlib.nullcontext():
        # As Estimator.evaluate does.
        tf.compat.v1.random.set_random_seed(estimator.config.tf_random_seed)
        estimator._create_and_assert_global_step(graph)
        *_, values = build(eval_spec.input_fn, estimator.config)
    return sorted(name for name, value in values.items() if value.shape.rank in (0, None))


def export_all(
    estimator: tf.estimator.Estimator,
    exporters: Sequence[tf.estimator.Exporter],
    checkpoint: str,
    metrics: Mapping[str, Any],
) -> None:
    """Calls the exporters with a checkpoint, as the final export."""
    for exporter in exporters:
        exporter.export(
            estimator=estimator,
            export_path=os.path.join(estimator.model_dir, "export", exporter.name),
            checkpoint_path=checkpoint,
            eval_result=metrics,
            is_the_final_export=True,
        )


def last_checkpoint(estimator: tf.estimator.Estimator) -> str:
    """Returns the path of the last checkpoint; raises ExportError if there is none."""
    if checkpoint := estimator.latest_checkpoint():
        return checkpoint
    raise ExportError(
        f"training left no checkpoint in {estimator.model_dir}, so there is nothing to evaluate and export",
        expected="a RunConfig that saves checkpoints",
        todo="set its save_checkpoints_steps or save_checkpoints_secs, and save_summary_steps to more than 0",
    )


def was_overtaken(estimator: tf.estimator.Estimator, error: Exception) -> bool:
    """Returns True if an evaluation failed only because training has removed the checkpoint that the error names."""
    named = re.search(r"(\S*model\.ckpt-\d+)", str(error))
    latest = estimator.latest_checkpoint()
    return bool(
        named and latest and not latest.endswith(named[1]) and not tf.compat.v1.train.checkpoint_exists(named[1])
    )


def newest_export(estimator: tf.estimator.Estimator, exporters: Sequence[tf.estimator.Exporter]) -> str:
    """Finds the newest export of the first exporter that has one; without any, returns the folder of exports.

    That of a BestExporter need not come from the last evaluation.
    """
    for exporter in exporters:
        if found := export.newest_version(os.path.join(estimator.model_dir, "export", exporter.name)):
            return found
    return os.path.join(estimator.model_dir, "export")
