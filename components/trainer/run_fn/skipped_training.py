"""Has an Estimator's train_and_evaluate export even if all its steps were done before."""

from __future__ import annotations

import functools
from typing import Any


def apply() -> None:
    """Has a train_and_evaluate that finds nothing left to train evaluate and export the last checkpoint.

    TensorFlow 2.15 does neither then, and in TFX it need not: there a retry starts in an empty folder. Here a run_fn
    that was killed during its last evaluation finds its checkpoints again, and would never export a model.
    """
    from tensorflow_estimator.python.estimator import training

    executor = training._TrainingExecutor
    original = executor.run_local

    @functools.wraps(original)
    def run_local(self: Any) -> tuple[Any, Any]:
        metrics, exports = original(self)
        if metrics is None and self._estimator.latest_checkpoint():
            evaluator = executor._Evaluator(self._estimator, self._eval_spec, self._train_spec.max_steps)
            result, exports = evaluator.evaluate_and_export()
            metrics = result.metrics
        return metrics, exports

    executor.run_local = run_local
