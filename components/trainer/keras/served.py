"""Training with parameter servers, as TensorFlow 2 has it: the chief hands out steps, the workers do them.

Source: https://www.tensorflow.org/tutorials/distribute/parameter_server_training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfx_estimator.components.trainer.job import TaskContext
from tfx_estimator.components.trainer.keras.watch import Watch
from tfx_estimator.components.trainer.measuring import measure_server
from tfx_estimator.components.trainer.observers import EXTRA_STEPS
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.measurement import Window
from tfx_estimator.components.trainer.task.runtime import allow_ops
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.trainer import TrainerSection

_FAIL_FAST = "GRPC_FAIL_FAST"
# Shorter stretches between two moments when no worker works would cost more than they tell.
_LEAST_STRETCH = 10
# Longer ones would be heard of too seldom.
_MOST_STRETCH = 100

InputFn = Callable[..., tf.data.Dataset]


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
        window.tell_started(context.task.name)
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


def fit(model: tf.keras.Model, make_dataset: Callable[[Any], tf.data.Dataset], watch: Watch) -> None:
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


def loop(
    model: tf.keras.Model,
    make_dataset: Callable[[Any], tf.data.Dataset],
    watch: Watch,
    strategy: tf.distribute.Strategy,
) -> None:
    """Trains by a `ClusterCoordinator` of our own."""
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
