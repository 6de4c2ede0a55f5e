"""Session hooks that report progress."""

from __future__ import annotations

import time
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.model_fn.precision import SKIPPED_STEPS

_EVERY_SECONDS = 0.5
# In a graph with a model of Keras's, that is the name of a scope already.
_LOSSES = ("loss", "loss_1")


class TrainingProgressHook(tf.compat.v1.train.SessionRunHook):
    """Reports step and loss, at most twice a second, and at the end.

    Other steps fetch nothing, so that the hook costs next to nothing.
    """

    def __init__(self, progress: ProgressWriter, total: Optional[int]) -> None:
        self._progress = progress
        self._total = total
        self._last = 0.0
        self._fetches: dict[str, tf.Tensor] = {}

    def begin(self) -> None:
        """Finds the tensors to report."""
        self._fetches = {"step": tf.compat.v1.train.get_or_create_global_step()}
        for skipped in tf.compat.v1.get_collection(SKIPPED_STEPS)[:1]:
            self._fetches["skipped_steps"] = skipped
        loss = _loss_tensor()
        if loss is not None:
            self._fetches["loss"] = loss

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reports the step that training starts from."""
        total = {} if self._total is None else {"total": int(self._total)}
        self._progress.write(Event.STEP, step=int(session.run(self._fetches["step"])), **total)

    def before_run(self, run_context: Any) -> Optional[tf.compat.v1.train.SessionRunArgs]:
        """Asks for the tensors when a report is due."""
        if time.monotonic() - self._last < _EVERY_SECONDS:
            return None
        return tf.compat.v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Reports what came."""
        if run_values.results is None:
            return
        self._last = time.monotonic()
        values = run_values.results
        # The step was read beside the update, so it may be the one before.
        self._progress.write(Event.STEP, **{key: value.item() for key, value in values.items()})

    def end(self, session: Any) -> None:
        """Reports the last step."""
        wanted = {key: value for key, value in self._fetches.items() if key != "loss"}
        values = session.run(wanted)
        self._progress.write(Event.STEP, **{key: int(value) for key, value in values.items()})


class EvaluationProgressHook(tf.compat.v1.train.SessionRunHook):
    """Reports that an evaluation is alive."""

    def __init__(self, progress: ProgressWriter) -> None:
        self._progress = progress
        self._last = 0.0
        self._batches = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts batches."""
        self._batches += 1
        if time.monotonic() - self._last >= _EVERY_SECONDS:
            self._last = time.monotonic()
            self._progress.write(Event.EVALUATING, batches=self._batches)


def _loss_tensor() -> Optional[tf.Tensor]:
    """The training loss of anyone's model_fn: what an Estimator's own `loss` summary shows."""
    for summary in tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES):
        if summary.op.name in _LOSSES:
            return summary.op.inputs[1]
    return None
