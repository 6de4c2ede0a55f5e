"""The Evaluator component."""

from __future__ import annotations

from tfx.components.evaluator import component as tfx_evaluator
from tfx.dsl.components.base import executor_spec

from tfx_estimator.components.evaluator.executor import Executor


class Evaluator(tfx_evaluator.Evaluator):
    """`tfx.components.Evaluator`, whose `eval_config` need not say which output of a model holds the scores.

    A model spec without a `prediction_key` is given the one that fits, and the metrics of sparse categories are told
    what it holds: probabilities, logits, or the probability of the second of two classes.

    Arguments and outputs are those of TFX's. What is chosen follows from the model, so that the key of the cache is
    TFX's, too.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
