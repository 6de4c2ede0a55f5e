"""The two ways to drive the same training step: `fit`, and a loop of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfx_estimator.components.trainer.keras.watch import Watch


def fit(model: tf.keras.Model, batches: Any, watch: Watch) -> None:
    """Trains by `Model.fit`.

    Args:
        model: Compiled with `steps_per_execution` of 2 or more: Keras then lets the number change.
        batches: An endless data set, distributed if the model is.
        watch: Decides on the steps of each execution.
    """
    if watch.ended:
        return
    remaining = watch.total - watch.step
    model.fit(batches, steps_per_epoch=remaining, epochs=1, verbose=0, callbacks=[_Callback(watch)])


class _Callback(tf.keras.callbacks.Callback):
    """Tells the watch of each execution, and Keras of the next one's length."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        # What logs Keras makes for it are fetched once per execution.
        self._supports_tf_logs = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets the length of the first execution."""
        self._set_length()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends an execution."""
        self._watch.done(self._length, {name: float(value) for name, value in logs.items()})
        if self._watch.ended:
            self.model.stop_training = True
        else:
            self._set_length()

    def _set_length(self) -> None:
        self._length = self._watch.next_steps()
        self.model._steps_per_execution.assign(self._length)


def loop(model: tf.keras.Model, batches: Any, watch: Watch, strategy: tf.distribute.Strategy) -> None:
    """Trains by a loop of several steps in one `tf.function`.

    Args:
        model: Compiled.
        batches: As for `fit`.
        watch: As for `fit`.
        strategy: The model's.

    Source: https://www.tensorflow.org/tutorials/distribute/custom_training.
    """
    execute, iterator = make_execute(model, strategy), iter(batches)
    while not watch.ended:
        steps = watch.next_steps()
        values = execute(iterator, tf.constant(steps))
        watch.done(steps, {name: float(value) for name, value in values.items()})


def make_execute(model: tf.keras.Model, strategy: tf.distribute.Strategy) -> Callable[..., Mapping[str, tf.Tensor]]:
    """Makes the `tf.function` of several steps, called with an iterator over batches and the number of steps.

    Args:
        model: Compiled.
        strategy: The model's.

    Returns:
        The function; it returns what the last step does.
    """

    def one_step(iterator: Any) -> Mapping[str, tf.Tensor]:
        values = strategy.run(model.train_step, args=(next(iterator),))
        # The step has added up over the replicas: each has the same.
        return {name: strategy.experimental_local_results(value)[0] for name, value in values.items()}

    @tf.function
    def execute(iterator: Any, steps: tf.Tensor) -> Mapping[str, tf.Tensor]:
        for _ in tf.range(steps - 1):
            one_step(iterator)
        return one_step(iterator)

    return execute
