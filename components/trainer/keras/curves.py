"""Curves for TensorBoard, in the form in which an Estimator writes them."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf


class Curves:
    """Writes scalars and the marks of a session.

    Args:
        folder: Of the event files.
    """

    def __init__(self, folder: str) -> None:
        # Refused outside of a graph, of which nothing is written.
        with tf.Graph().as_default():
            self._writer = tf.compat.v1.summary.FileWriter(folder)

    def started(self, step: int) -> None:
        """Marks that training starts, or goes on.

        Args:
            step: The global step.
        """
        self._mark(tf.compat.v1.SessionLog.START, step)

    def saved(self, step: int) -> None:
        """Marks a checkpoint.

        Args:
            step: The global step.
        """
        self._mark(tf.compat.v1.SessionLog.CHECKPOINT, step)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one point of each curve.

        Args:
            step: The global step.
            values: By name.
        """
        summary = tf.compat.v1.Summary()
        for name, value in values.items():
            summary.value.add(tag=name, simple_value=value)
        self._writer.add_summary(summary, step)

    def flush(self) -> None:
        """Has what was written be seen."""
        self._writer.flush()

    def _mark(self, status: int, step: int) -> None:
        self._writer.add_session_log(tf.compat.v1.SessionLog(status=status), step)
        self._writer.flush()
