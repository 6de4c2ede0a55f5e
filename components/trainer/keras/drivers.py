"""The two ways to drive the same training step: `fit`, and a loop of our own.

Each is there for replicas that train in step, and for parameter servers, as TensorFlow 2 has them: the chief hands out
steps, and the workers do them.
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
# Shorter stretches between two moments when no worker works would cost more than they tell.
_LEAST_STRETCH = 10
# Longer ones would be heard of too seldom.
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
    def execute(iterator: Any, steps: tf.Tensor, start: Any = 0) -> Mapping[str, tf.Tensor]:
        steps = tf.cast(steps, tf.int64)
        for number in tf.range(1, steps):
            one_step(iterator, start + number)
        return one_step(iterator, start + steps)

    return execute


def prepare(tasks: int) -> None:
    """Sets what TensorFlow reads once, before it is used."""
    allow_ops(tasks)
    # As the tutorial has it: that a task has gone is an error at once.
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
    """Returns the steps between two moments when all workers wait: for a report, and at times for a checkpoint."""
    every, most = section.checkpoint_steps, max(section.report_steps, _LEAST_STRETCH)
    fitting = max(each for each in range(1, min(every, most) + 1) if every % each == 0)
    return fitting if fitting >= _LEAST_STRETCH else every if every <= _MOST_STRETCH else most


def dataset_fn(input_fn: InputFn, workers: int) -> Callable[[Any], tf.data.Dataset]:
    """Makes what TensorFlow traces once, and calls on each worker: its share of the examples, by its own number."""

    def make(_: Any) -> tf.data.Dataset:
        number = tf.distribute.coordinator.experimental_get_current_worker_index()
        context = tf.distribute.InputContext(workers, tf.cast(number, tf.int64), num_replicas_in_sync=1)
        return input_fn(ModeKeys.TRAIN, context)

    return make


def position(model: tf.keras.Model, step: int) -> Callable[[], tf.Tensor]:
    """Makes what tells in the graph, whenever a worker begins to read, how many steps are done, int64.

    TensorFlow runs the same graph for a worker that is started again alone: a number would be that of the beginning.
    """
    return lambda: tf.maximum(tf.cast(model.optimizer.iterations, tf.int64), step)


def _values(model: tf.keras.Model, watch: Watch, steps: int, values: Mapping[str, Any]) -> dict[str, float]:
    """What to report of a stretch: with the steps that were done once more, as the worker died that had done them."""
    extra = max(int(model.optimizer.iterations.numpy()) - watch.step - steps, 0)
    return {**{name: float(value) for name, value in values.items()}, EXTRA_STEPS: extra}


def fit_by_workers(model: tf.keras.Model, make_dataset: Callable[[Any], tf.data.Dataset], watch: Watch) -> None:
    """Trains by `Model.fit`, whose callbacks know of no step here: an epoch is a stretch."""
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
        # In the first the workers make what they read, and at times the functions that they run.
        self._watch.done(self._steps, _values(self.model, self._watch, self._steps, logs), paced=epoch > 0)
        if self._watch.ended:
            self.model.stop_training = True


def loop_by_workers(
    model: tf.keras.Model,
    make_dataset: Callable[[Any], tf.data.Dataset],
    watch: Watch,
    strategy: tf.distribute.Strategy,
) -> None:
    """Trains by a `ClusterCoordinator` of our own.

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
        # As `fit` does at each of its epochs: no worker is in a step.
        model.reset_metrics()
        for _ in range(steps):
            last = coordinator.schedule(one_step, args=(iterator,))
        coordinator.join()
        watch.done(steps, _values(model, watch, steps, last.fetch()))
