"""Two drivers of the same training step: `fit`, and a custom loop.

Each exists for synchronous replicas, and for parameter servers as in TensorFlow 2: the chief schedules steps, and the
workers execute them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.job import TaskContext
from tfx_estimator.components.trainer.keras.watch import Watch
from tfx_estimator.components.trainer.measuring import measure_server
from tfx_estimator.components.trainer.observers import EXTRA_STEPS
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.measurement import Window
from tfx_estimator.components.trainer.task.runtime import allow_ops
from tfx_estimator.model_fn.optim.averaging import Averaging
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.trainer import TrainerSection

_FAIL_FAST = "GRPC_FAIL_FAST"
# A stretch is the steps between two points where all workers wait. Shorter ones would cost too much time.
_LEAST_STRETCH = 10
# Longer ones would be reported too seldom.
_MOST_STRETCH = 100

InputFn = Callable[..., tf.data.Dataset]


def fit(
    model: tf.keras.Model,
    batches: Any,
    watch: Watch,
    strategy: tf.distribute.Strategy,
    averaging: Optional[Averaging] = None,
) -> None:
    """Trains by `Model.fit` until the watch has ended.

    Args:
        model: Compiled with `steps_per_execution` of 2 or more: only then does Keras let the number change.
        batches: An infinite data set, distributed if the model is.
        averaging: Averages the replicas' weights; None if they are equal anyway.
    """
    if watch.ended:
        return
    if averaging is not None:
        execute, length = make_execute(model, strategy, averaging), model._steps_per_execution
        # Replaces Keras's train function, which has no hook between two steps of an execution.
        model.train_function = lambda iterator: execute(iterator, length.value(), tf.constant(watch.step, tf.int64))
    remaining = watch.total - watch.step
    model.fit(batches, steps_per_epoch=remaining, epochs=1, verbose=0, callbacks=[_Callback(watch)])


class _Callback(tf.keras.callbacks.Callback):
    """Reports each execution to the watch, and sets the length of the next one in Keras."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        # False: Keras fetches the logs once per execution.
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
    """Trains by a loop of several steps in one `tf.function`, until the watch has ended.

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
    """Makes a `tf.function` of an iterator, a number of steps and the global step before them, int64.

    It returns the last step's values. Only averaging needs the global step.
    """

    def one_step(iterator: Any, step: tf.Tensor) -> Mapping[str, tf.Tensor]:
        values = strategy.run(model.train_step, args=(next(iterator),))
        if averaging is not None:
            averaging.after(step)
        return {name: of_task(strategy.experimental_local_results(value)) for name, value in values.items()}

    def of_task(replicas: Sequence[tf.Tensor]) -> tf.Tensor:
        # Every replica has the sum over all of them, unless they train independently between averages.
        return replicas[0] if averaging is None else tf.add_n(list(replicas)) / len(replicas)

    @tf.function
    def execute(iterator: Any, steps: tf.Tensor, start: Any = 0) -> Mapping[str, tf.Tensor]:
        steps = tf.cast(steps, tf.int64)
        for number in tf.range(1, steps):
            one_step(iterator, start + number)
        return one_step(iterator, start + steps)

    return execute


def prepare(tasks: int) -> None:
    """Sets options that TensorFlow reads once, before its first use."""
    allow_ops(tasks)
    # As in TensorFlow's tutorial: a lost task is an error at once.
    os.environ.setdefault(_FAIL_FAST, "use_caller")


def serve(context: TaskContext) -> None:
    """Serves the chief, as a worker or a parameter server; does not return."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    context.progress.write(Event.SERVING)
    if context.task.trains and (window := Window.of_environment()):
        window.mark_started(context.task.name)
    measure_server(context.task.name)
    server.join()


def stretch(section: TrainerSection) -> int:
    """Returns the steps between two points where all workers wait, for a report and possibly a checkpoint."""
    every, most = section.checkpoint_steps, max(section.report_steps, _LEAST_STRETCH)
    fitting = max(each for each in range(1, min(every, most) + 1) if every % each == 0)
    return fitting if fitting >= _LEAST_STRETCH else every if every <= _MOST_STRETCH else most


def dataset_fn(input_fn: InputFn, workers: int) -> Callable[[Any], tf.data.Dataset]:
    """Makes a function that TensorFlow traces once and calls on each worker, for its shard of the examples."""

    def make(_: Any) -> tf.data.Dataset:
        number = tf.distribute.coordinator.experimental_get_current_worker_index()
        context = tf.distribute.InputContext(workers, tf.cast(number, tf.int64), num_replicas_in_sync=1)
        return input_fn(ModeKeys.TRAIN, context)

    return make


def position(model: tf.keras.Model, step: int) -> Callable[[], tf.Tensor]:
    """Makes a function that returns, in the graph, the number of completed steps when a worker begins to read, int64.

    TensorFlow runs the same graph again for a restarted worker: a constant would be the step of the first start.
    """
    return lambda: tf.maximum(tf.cast(model.optimizer.iterations, tf.int64), step)


def _values(model: tf.keras.Model, watch: Watch, steps: int, values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the values to report, with the number of extra steps: those that were repeated after a worker died."""
    extra = max(int(model.optimizer.iterations.numpy()) - watch.step - steps, 0)
    return {**{name: float(value) for name, value in values.items()}, EXTRA_STEPS: extra}


def fit_by_workers(model: tf.keras.Model, make_dataset: Callable[[Any], tf.data.Dataset], watch: Watch) -> None:
    """Trains by `Model.fit` with one epoch per stretch: its callbacks see no steps here."""
    while not watch.ended:
        length = watch.next_steps()
        epochs = watch.whole_executions(length) if length == watch.stretch else 1
        batches = tf.keras.utils.experimental.DatasetCreator(make_dataset)
        model.fit(batches, steps_per_epoch=length, epochs=epochs, verbose=0, callbacks=[_Stretches(watch, length)])


class _Stretches(tf.keras.callbacks.Callback):
    def __init__(self, watch: Watch, steps: int) -> None:
        super().__init__()
        self._watch = watch
        self._steps = steps

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        # In the first epoch the workers build their data sets, and possibly trace their functions.
        self._watch.done(self._steps, _values(self.model, self._watch, self._steps, logs), paced=epoch > 0)
        if self._watch.ended:
            self.model.stop_training = True


def loop_by_workers(
    model: tf.keras.Model,
    make_dataset: Callable[[Any], tf.data.Dataset],
    watch: Watch,
    strategy: tf.distribute.Strategy,
) -> None:
    """Trains by a `ClusterCoordinator`.

    Source: https://www.tensorflow.org/tutorials/distribute/parameter_server_training.
    """
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def per_worker() -> Any:
        return strategy.distribute_datasets_from_function(make_dataset)

    @tf.function
    def one_step(iterator: Any) -> Any:
        return strategy.run(model.train_step, args=(next(iterator),))

    iterator = iter(coordinator.create_per_worker_dataset(per_worker))
    while not watch.ended:
        steps = watch.next_steps()
        # As `fit` does at each epoch: no worker is in a step.
        model.reset_metrics()
        for _ in range(steps):
            last = coordinator.schedule(one_step, args=(iterator,))
        coordinator.join()
        watch.done(steps, _values(model, watch, steps, last.fetch()))
