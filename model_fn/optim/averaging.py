"""Local SGD: replicas train independently and average their weights.

The optimizer's slots are averaged as well, so that a checkpoint is the same in each process and training resumes from
it as if it had not stopped.

Source: Stich, Local SGD Converges Fast and Communicates Little, 2018, https://arxiv.org/abs/1805.09767.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from tfx_estimator.model_fn.step.precision import stored

# Slots of the outer momentum: the weights of the last averaging, and how they move from one to the next.
_ANCHOR, _VELOCITY = "anchor", "velocity"


class Averaging:
    """Averages a model over all replicas. Constructed in the strategy's scope, before a checkpoint is restored.

    Args:
        model: Built, and compiled with an `optimizer.DeclaredOptimizer`.
        every: Steps between two averagings.
        outer_momentum: Heavy-ball momentum of the averaged change; 0 is the plain mean.

    Source: Wang et al., SlowMo, 2019, https://arxiv.org/abs/1910.00643.
    """

    def __init__(
        self, model: tf.keras.Model, strategy: tf.distribute.Strategy, every: int, outer_momentum: float = 0.0
    ) -> None:
        self._strategy = strategy
        self._every = every
        self._momentum = outer_momentum
        self._weights = stored(model.trainable_variables)
        self._slots = [each for each in model.optimizer.weights if each.dtype.is_floating]
        self._outer: list[tuple[tf.Variable, tf.Variable]] = []
        if outer_momentum:
            add = model.optimizer.add_slot
            self._outer = [
                (add(each, _ANCHOR, lambda shape, dtype, of=each: tf.identity(of)), add(each, _VELOCITY))
                for each in self._weights
            ]
        self._before_checkpoint = tf.function(functools.partial(self._average, is_due=False))

    def begin(self) -> None:
        """Starts the outer momentum at the current weights."""
        for weight, (anchor, _) in zip(self._weights, self._outer):
            anchor.assign(tf.identity(weight))

    def after(self, step: tf.Tensor) -> None:
        """Averages every `every` steps; runs inside the training graph, where it costs no more than the all-reduce."""

        def average() -> tf.Operation:
            self._average(is_due=True)
            return tf.no_op()

        tf.cond(tf.equal(step % self._every, 0), average, tf.no_op)

    def before_checkpoint(self) -> None:
        """Averages between two executions; every process must call this between the same two.

        Without the outer momentum, whose step comes at its regular time whether training was stopped or not.
        """
        self._before_checkpoint()

    def _average(self, is_due: bool) -> None:
        self._strategy.run(functools.partial(self._send, is_due))

    def _send(self, is_due: bool) -> None:
        own = [tf.identity(each) for each in (*self._weights, *self._slots)]
        receive = functools.partial(self._receive, outer=self._outer if is_due else ())
        tf.distribute.get_replica_context().merge_call(receive, args=(own,))

    def _receive(
        self,
        strategy: tf.distribute.Strategy,
        own: Sequence[tf.Tensor],
        outer: Sequence[tuple[tf.Variable, tf.Variable]],
    ) -> None:
        variables, extended = [*self._weights, *self._slots], strategy.extended
        means = extended.batch_reduce_to(tf.distribute.ReduceOp.MEAN, list(zip(own, variables)))
        for variable, mean, slots in zip(variables, means, outer):
            extended.update(variable, self._move, args=(mean, *slots), group=False)
        for variable, mean in zip(variables[len(outer) :], means[len(outer) :]):
            extended.update(variable, _assign, args=(mean,), group=False)

    def _move(self, variable: tf.Variable, mean: tf.Tensor, anchor: tf.Variable, velocity: tf.Variable) -> None:
        moved = velocity.assign(self._momentum * velocity + (mean - anchor))
        _assign(variable, anchor.assign_add(moved))
        if variable.constraint is not None:
            anchor.assign(variable)


def _assign(variable: tf.Variable, value: tf.Tensor) -> None:
    """Assigns a weight or slot, and applies its constraint: the mean of two vectors of norm 1 has a smaller norm."""
    variable.assign(value)
    if variable.constraint is not None:
        variable.assign(variable.constraint(variable))
