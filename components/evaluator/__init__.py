"""TFX's Evaluator, which finds the scores among the outputs of any model."""

from tfx_estimator.components.evaluator.component import Evaluator

__all__ = ["Evaluator"]
