"""What the supervisor must know of the Keras paths."""

from __future__ import annotations

from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, PS, WORKER
from tfx_estimator.components.trainer.protocol.traits import PathTraits
from tfx_estimator.pipeline.config.distribution import Distribution


def traits(distribution: Distribution) -> PathTraits:
    """Returns the traits under a declared distribution.

    As on the Estimator path a cluster trains only, and an evaluator, or a task of its own afterwards, evaluates and
    exports.
    """
    train = distribution.train
    if not train.is_cluster:
        return PathTraits(exporter=CHIEF)
    return PathTraits(
        exporter=EVALUATOR if distribution.evaluator else EXPORTER,
        alone=frozenset({EVALUATOR, WORKER} if train.asynchronous else {EVALUATOR}),
        serving=frozenset({WORKER, PS} if train.asynchronous else {PS}),
        synchronous=train.is_collective,
    )
