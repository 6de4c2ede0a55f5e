"""A way to compute a step, at work: the product's own step, on a batch that stays in memory."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Mapping
from typing import Any, Optional, Protocol

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.settings import ESTIMATOR, SETTINGS_KEY, Settings
from tfx_estimator.components.trainer.task.context import TaskContext
from tfx_estimator.components.trainer.task.fn_args import make_fn_args
from tfx_estimator.model_fn.strategies import make_keras_strategy, make_strategy
from tfx_estimator.pipeline.config.trainer import TrainerSection

# For a session to end; its process does so soon, whatever it still does.
_END_SECONDS = 5.0

Batch = tuple[Mapping[str, np.ndarray], np.ndarray]


class Candidate(Protocol):
    """Trains one way."""

    def run(self, steps: int) -> None:
        """Trains so many steps, and returns when they are done."""

    def close(self) -> None:
        """Ends what is at work."""


def make(context: TaskContext, section: TrainerSection, spec: Mapping[str, Any], batch: Batch) -> Candidate:
    """Makes what trains one way; no other one may be made, or run, meanwhile.

    Args:
        context: Of the task; its training folder is for what an Estimator writes.
        section: The trainer, decided, and of one process.
        spec: Of the transformed features.
        batch: To train with, the same at each step: examples of all replicas.
    """
    # Layers are made for the precision that was set last.
    tf.keras.mixed_precision.set_global_policy("float32")
    if context.job.path == ESTIMATOR:
        return _OfEstimator(context, section, batch)
    return _OfKeras(section, len(context.settings.label_names), spec, batch)


class _OfKeras:
    """Of both Keras paths, which drive one training step."""

    def __init__(self, section: TrainerSection, classes: int, spec: Mapping[str, Any], batch: Batch) -> None:
        from tfx_estimator.components.trainer.keras import drivers
        from tfx_estimator.components.trainer.keras.model import ModelMaker

        strategy = make_keras_strategy(section.distribution.train) or tf.distribute.get_strategy()
        with strategy.scope():
            model = ModelMaker(section, classes, spec).make_compiled(2)
        self._execute = drivers.make_execute(model, strategy)
        self._iterator = iter(strategy.distribute_datasets_from_function(lambda context: _again(batch, context)))

    def run(self, steps: int) -> None:
        """See Candidate."""
        values = self._execute(self._iterator, tf.constant(steps))
        float(values["loss"])

    def close(self) -> None:
        """See Candidate."""


class _OfEstimator:
    """An Estimator's own session, which goes on in a thread while it is this one's turn."""

    def __init__(self, context: TaskContext, section: TrainerSection, batch: Batch) -> None:
        from tfx_estimator.components.trainer.estimator.distribute import distribute
        from tfx_estimator.components.trainer.estimator.trainer_fn import trainer_fn

        fn_args = make_fn_args(context.job)
        settings = with_section(context.settings, section)
        fn_args.custom_config = {**(fn_args.custom_config or {}), SETTINGS_KEY: settings.to_dict()}
        estimator = trainer_fn(fn_args, None)["estimator"]
        estimator = distribute(estimator, make_strategy(section.distribution.train), None, in_cluster=False)
        self._turns = _Turns()
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._train, args=(estimator, batch), daemon=True)
        self._thread.start()
        self._wait()

    def run(self, steps: int) -> None:
        """See Candidate."""
        self._turns.granted.put(steps)
        self._wait()

    def close(self) -> None:
        """See Candidate."""
        self._turns.granted.put(0)
        self._thread.join(_END_SECONDS)

    def _train(self, estimator: tf.estimator.Estimator, batch: Batch) -> None:
        def input_fn(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
            return _again(batch, input_context)

        try:
            estimator.train(input_fn, hooks=[self._turns])
        except BaseException as error:
            self._error = error
        self._turns.done.put(None)

    def _wait(self) -> None:
        self._turns.done.get()
        if self._error is not None:
            raise self._error


class _Turns(tf.compat.v1.train.SessionRunHook):
    """Holds a session between two steps until it is granted further ones."""

    def __init__(self) -> None:
        self.granted: queue.Queue[int] = queue.Queue()
        self.done: queue.Queue[None] = queue.Queue()
        self._left = 0

    def before_run(self, run_context: Any) -> None:
        """Waits."""
        if not self._left:
            self.done.put(None)
            self._left = self.granted.get()
            if not self._left:
                run_context.request_stop()
                self._left = 1
        self._left -= 1


def with_section(settings: Settings, section: TrainerSection) -> Settings:
    """Returns the settings with another trainer.

    Args:
        settings: Of the Trainer, with a declaration.
        section: The other one.
    """
    return dataclasses.replace(settings, declaration={**(settings.declaration or {}), "trainer": section.dict()})


def _again(batch: Batch, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
    """The batch, or a replica's part of it, over and over."""
    replicas = context.num_replicas_in_sync if context else 1
    own = tf.nest.map_structure(lambda each: each[: each.shape[0] // replicas], batch)
    return tf.data.Dataset.from_tensors(own).repeat()
