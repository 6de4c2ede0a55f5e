"""The final evaluation, its report, and the export that it leads to."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer import export
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.pipeline.errors import ExportError


class MetricsReporter(tf.estimator.Exporter):
    """Exports nothing: it reports the metrics of each evaluation to the supervisor."""

    def __init__(self, progress: ProgressWriter) -> None:
        self._progress = progress
        self.reported = False

    @property
    def name(self) -> str:
        """Of an exporter, unique within an EvalSpec."""
        return "tfx_estimator_metrics"

    def export(
        self,
        estimator: tf.estimator.Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> None:
        """Reports the metrics.

        Args:
            estimator: Not needed.
            export_path: Not needed.
            checkpoint_path: Not needed.
            eval_result: What the evaluation returned.
            is_the_final_export: Is training over.
        """
        # A metric may be a vector, such as precision_at_thresholds: TensorBoard shows those.
        scalars = {name: value for name, value in eval_result.items() if np.ndim(value) == 0 and name != "global_step"}
        values = {name: float(value) for name, value in scalars.items()}
        self.reported = True
        self._progress.write(Event.EVALUATED, step=int(eval_result["global_step"]), metrics=values)


def evaluate_if_needed(estimator: tf.estimator.Estimator, eval_spec: tf.estimator.EvalSpec) -> None:
    """Evaluates and exports where training had ended in an earlier run or other tasks: TensorFlow then does neither.

    Args:
        estimator: The trained Estimator.
        eval_spec: The last of its exporters is a MetricsReporter.

    Raises:
        ExportError: Training left no checkpoint.
    """
    reporter: MetricsReporter = eval_spec.exporters[-1]
    if reporter.reported:
        return
    if estimator.latest_checkpoint() is None:
        raise ExportError(
            f"training left no checkpoint in {estimator.model_dir}, so there is nothing to evaluate and export",
            expected="a RunConfig that saves checkpoints",
            todo="set its save_checkpoints_steps or save_checkpoints_secs, and save_summary_steps to more than 0",
        )
    metrics = estimator.evaluate(eval_spec.input_fn, eval_spec.steps, hooks=eval_spec.hooks, name=eval_spec.name)
    for exporter in eval_spec.exporters:
        exporter.export(
            estimator=estimator,
            export_path=os.path.join(estimator.model_dir, "export", exporter.name),
            checkpoint_path=estimator.latest_checkpoint(),
            eval_result=metrics,
            is_the_final_export=True,
        )


def was_overtaken(estimator: tf.estimator.Estimator, error: Exception) -> bool:
    """Tells whether an evaluation failed only because training went on and removed its checkpoint.

    Args:
        estimator: The Estimator.
        error: What the evaluation raised.

    Returns:
        Whether the checkpoint that the error names is gone and a newer one is there.
    """
    named = re.search(r"(\S*model\.ckpt-\d+)", str(error))
    latest = estimator.latest_checkpoint()
    return bool(
        named and latest and not latest.endswith(named[1]) and not tf.compat.v1.train.checkpoint_exists(named[1])
    )


def newest_export(estimator: tf.estimator.Estimator, exporters: Sequence[tf.estimator.Exporter]) -> str:
    """Finds the newest export of the first exporter that has one.

    A BestExporter's need not come from the last evaluation.

    Args:
        estimator: The trained Estimator.
        exporters: Of the user's EvalSpec.

    Returns:
        Folder of a SavedModel; where there is none, the folder that it should be in.
    """
    for exporter in exporters:
        if found := export.newest_version(os.path.join(estimator.model_dir, "export", exporter.name)):
            return found
    return os.path.join(estimator.model_dir, "export")
