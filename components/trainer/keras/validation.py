"""Evaluates a few checkpoints while one process trains, for the curve; decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from absl import logging

from tfx_estimator.components.trainer.keras.evaluation import require_number
from tfx_estimator.components.trainer.keras.saver import latest_checkpoint
from tfx_estimator.pipeline.base.errors import TrainingError


class Validation:
    """The evaluations of a training that nothing decides on, as `tf.estimator.train_and_evaluate` has them.

    Args:
        measure: Evaluates a checkpoint.
        seconds: Between the starts of two evaluations, and before the first one, at least.
    """

    def __init__(self, measure: Callable[[str], dict[str, float]], folder: str, seconds: float) -> None:
        self._measure = measure
        self._folder = folder
        self._seconds = seconds
        self._started = time.monotonic()
        self.seen = ""

    def ends(self) -> bool:
        """Evaluates the checkpoint that was just saved, if it is time; training goes on."""
        if time.monotonic() - self._started < self._seconds:
            return False
        self._started, checkpoint = time.monotonic(), latest_checkpoint(self._folder) or ""
        # In a thread of its own: `fit` calls from inside the scope of its strategy, which no other may enter.
        try:
            with ThreadPoolExecutor(1) as pool:
                require_number(pool.submit(self._measure, checkpoint).result(), checkpoint)
        except TrainingError as error:
            # The last checkpoint is judged: this one may be of a network that normalises batches and has seen few.
            logging.warning("%s; training goes on", error)
            return False
        self.seen = checkpoint
        return False
