"""Has the tasks of a synchronous cluster decide alike, although each has measured and seen something else."""

from __future__ import annotations

import tensorflow as tf


class Agreement:
    """Averages numbers over all tasks; one that trains alone agrees with itself, at no cost.

    Args:
        strategy: Under which all of them train.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self._alone = not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self._mean = tf.function(self._over_replicas)

    def mean(self, *values: float) -> tuple[float, ...]:
        """Returns the means; every task must call this between the same two executions."""
        if self._alone:
            return values
        means = self._mean(tf.constant(values, tf.float64))
        return tuple(self._strategy.experimental_local_results(means)[0].numpy().tolist())

    def _over_replicas(self, values: tf.Tensor) -> tf.Tensor:
        def mean() -> tf.Tensor:
            # A copy: a reduction goes by the replica's device, and an argument has none.
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, tf.identity(values))

        return self._strategy.run(mean)
