"""The two ways to drive the same training step: `fit`, and a loop of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.keras.watch import Watch
from tfx_estimator.model_fn.optim.averaging import Averaging


def fit(
    model: tf.keras.Model,
    batches: Any,
    watch: Watch,
    strategy: tf.distribute.Strategy,
    averaging: Optional[Averaging] = None,
) -> None:
    """Trains by `Model.fit` until the watch has ended.

    Args:
        model: Compiled with `steps_per_execution` of 2 or more: Keras then lets the number change.
        batches: An endless data set, distributed if the model is.
        averaging: Of the replicas' weights; None where they are equal anyway.
    """
    if watch.ended:
        return
    if averaging is not None:
        execute, length = make_execute(model, strategy, averaging), model._steps_per_execution
        # Keras keeps what `make_train_function` returned, and has no place in it between two steps.
        model.train_function = lambda iterator: execute(iterator, length.value(), tf.constant(watch.step, tf.int64))
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


def loop(
    model: tf.keras.Model,
    batches: Any,
    watch: Watch,
    strategy: tf.distribute.Strategy,
    averaging: Optional[Averaging] = None,
) -> None:
    """The same by a loop of several steps in one `tf.function`.

    Source: https://www.tensorflow.org/tutorials/distribute/custom_training.
    """
    execute, iterator = make_execute(model, strategy, averaging), iter(batches)
    while not watch.ended:
        steps = watch.next_steps()
        values = execute(iterator, tf.constant(steps, tf.int64), tf.constant(watch.step, tf.int64))
        watch.done(steps, {name: float(value) for name, value in values.items()})


def make_execute(
    model: tf.keras.Model, strategy: tf.distribute.Strategy, averaging: Optional[Averaging] = None
) -> Callable[..., Mapping[str, tf.Tensor]]:
    """Makes the `tf.function` of several steps, of an iterator over batches, which returns what the last step does.

    The global step that they start from, int64, an averaging alone needs.
    """

    def one_step(iterator: Any, step: tf.Tensor) -> Mapping[str, tf.Tensor]:
        values = strategy.run(model.train_step, args=(next(iterator),))
        if averaging is not None:
            averaging.after(step)
        return {name: of_task(strategy.experimental_local_results(value)) for name, value in values.items()}

    def of_task(replicas: Sequence[tf.Tensor]) -> tf.Tensor:
        # The step has added up over the replicas, and each has the same; but where they train by themselves.
        return replicas[0] if averaging is None else tf.add_n(list(replicas)) / len(replicas)

    @tf.function
    def execute(iterator: Any, steps: tf.Tensor, start: Optional[tf.Tensor] = None) -> Mapping[str, tf.Tensor]:
        steps = tf.cast(steps, tf.int64)
        if start is None:
            assert averaging is None
            start = tf.zeros([], tf.int64)
        for number in tf.range(1, steps):
            one_step(iterator, start + number)
        return one_step(iterator, start + steps)

    return execute
