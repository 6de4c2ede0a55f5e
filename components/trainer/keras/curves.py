"""TensorBoard summaries, in the format of an Estimator's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.observers import Observer
from tfx_estimator.components.trainer.tensorboard import InputFn, first_images, histograms
from tfx_estimator.model_fn.optim.optimizer import given_rate
from tfx_estimator.pipeline.config.runtime import TensorBoard


class Curves(Observer):
    """Writes scalars and session logs.

    Args:
        folder: The folder of the event files.
        every: Steps between two points of a training, which begin with its first step.
        rate: Returns the learning rate of a step, counted from 1; None if unknown.
    """

    def __init__(self, folder: str, every: int = 1, rate: Callable[[int], Optional[float]] = lambda step: None) -> None:
        # FileWriter requires graph mode; nothing of this graph is written.
        with tf.Graph().as_default():
            self._writer = tf.compat.v1.summary.FileWriter(folder)
        self._every = every
        self._rate = rate

    def begin(self, step: int) -> None:
        """Marks that training starts or resumes."""
        self._begins = True
        # TensorBoard drops what an earlier attempt has written from this step on: the point of the checkpoint stays.
        self._mark(tf.compat.v1.SessionLog.START, step + 1)

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """Writes a point if one is due."""
        if step % self._every == 0 or self._begins:
            self.write(step, values)
        self._begins = False

    def before_save(self, step: int) -> None:
        """Marks a checkpoint."""
        self._mark(tf.compat.v1.SessionLog.CHECKPOINT, step)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one point of each curve."""
        summary = tf.compat.v1.Summary()
        for name, value in values.items():
            summary.value.add(tag=name, simple_value=value)
        if (rate := self._rate(step)) is not None:
            summary.value.add(tag="learning_rate", simple_value=rate)
        self.add(summary, step)

    def add(self, summary: tf.compat.v1.Summary | bytes, step: int) -> None:
        """Adds a summary, serialized or not."""
        self._writer.add_summary(summary, step)

    def flush(self) -> None:
        """Flushes the file."""
        self._writer.flush()

    def _mark(self, status: int, step: int) -> None:
        self._writer.add_session_log(tf.compat.v1.SessionLog(status=status), step)
        self._writer.flush()


class Additions(Observer):
    """Writes what `trainer.tensorboard` declares next to the curves."""

    def __init__(self, declared: TensorBoard, curves: Curves, input_fn: InputFn, model: tf.keras.Model) -> None:
        self._declared = declared
        self._curves = curves
        self._input_fn = input_fn
        self._model = model

    def begin(self, step: int) -> None:
        """Writes the images at the start of a training."""
        if self._declared.images and not step:
            self._curves.add(first_images(self._input_fn, self._declared.images), step)

    def before_save(self, step: int) -> None:
        """Writes the histograms of a checkpoint."""
        if self._declared.histograms:
            trained = self._model.trainable_variables
            values = {each.name.partition(":")[0]: tf.convert_to_tensor(each) for each in trained}
            self._curves.add(histograms(values), step)


def learning_rate_of(optimizer: Any, step: int) -> Optional[float]:
    """Returns the learning rate of a step, counted from 1 as in an Estimator's summaries.

    None if the optimizer has none, or if its schedule cannot be called outside of an update: a summary must not fail a
    training that Keras runs.
    """
    # Unwraps a LossScaleOptimizer.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    rate = given_rate(optimizer)
    if rate is None:
        return None
    if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
        # It may be the user's: it gets the step in the optimizer's own dtype.
        legacy = isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer)
        done = tf.constant(step - 1, tf.keras.backend.floatx() if legacy else tf.int64)
        try:
            rate = float(rate(done))
        except Exception:
            return None
    # A number, or a variable, which may be mirrored on the replicas.
    value = float(tf.convert_to_tensor(rate))
    # `decay` of legacy optimizers.
    return value / (1.0 + float(getattr(optimizer, "_initial_decay", 0.0)) * (step - 1))
