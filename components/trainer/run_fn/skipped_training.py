"""Has an Estimator's train_and_evaluate export even if all its steps were done before."""

from __future__ import annotations

from typing import Any

from tfx_estimator.components.trainer.patch import Patch


def _run_local(original: Any, executor: Any) -> tuple[Any, Any]:
    """Evaluates and exports the last checkpoint if there was nothing left to train."""
    metrics, exports = original(executor)
    if metrics is None and executor._estimator.latest_checkpoint():
        evaluator = executor._Evaluator(executor._estimator, executor._eval_spec, executor._train_spec.max_steps)
        result, exports = evaluator.evaluate_and_export()
        metrics = result.metrics
    return metrics, exports


PATCH = Patch(
    "tensorflow_estimator.python.estimator.training:_TrainingExecutor.run_local",
    _run_local,
    reason="a train_and_evaluate that finds nothing left to train exports nothing. In TFX a retry starts in an empty "
    "folder; here a run_fn that was killed in its last evaluation finds its checkpoints, and would export no model",
    until="the training folder is an empty one for a run_fn",
)
