"""What the supervisor must know of the Estimator path."""

from __future__ import annotations

from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, PS, WORKER
from tfx_estimator.components.trainer.protocol.traits import PathTraits
from tfx_estimator.pipeline.config.distribution import Distribution


def traits(distribution: Distribution) -> PathTraits:
    """Returns the traits under a declared distribution.

    In a cluster train_and_evaluate neither evaluates nor exports, but in an evaluator: without one, a task of its own
    does so afterwards. Parameter servers and their workers are taken back into a running cluster, an evaluator is in
    none. The chief is not taken back: the others would go on without checkpoints, and then lose what they did
    meanwhile.
    """
    train = distribution.train
    if not train.is_cluster:
        return PathTraits(exporter=CHIEF, needs_check=True)
    return PathTraits(
        exporter=EVALUATOR if distribution.evaluator else EXPORTER,
        alone=frozenset({EVALUATOR, WORKER, PS} if train.asynchronous else {EVALUATOR}),
        synchronous=train.is_collective,
        needs_check=True,
    )
