"""What the supervisor must know of the run_fn path."""

from __future__ import annotations

from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, PS, WORKER
from tfx_estimator.components.trainer.protocol.traits import PathTraits
from tfx_estimator.pipeline.config.distribution import Distribution


def traits(distribution: Distribution) -> PathTraits:
    """Returns the traits under a declared distribution: the function's own chief saves the model.

    TensorFlow 2's coordinator takes a worker back; without a parameter server all start again. Its workers serve until
    they are ended, as parameter servers do: all is done when the chief is.
    """
    train = distribution.train
    return PathTraits(
        exporter=CHIEF,
        alone=frozenset({WORKER, PS} if train.asynchronous else ()),
        serving=frozenset({WORKER, PS} if train.asynchronous else {PS}),
        synchronous=train.is_collective,
    )
