"""Evaluates a checkpoint: every example exactly once."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.keras.curves import Curves
from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.keras.saver import restore_weights, step_of
from tfx_estimator.components.trainer.keras.watch import not_a_number
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.model_fn.compiled_classifier import RETURNED
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

_EVERY_SECONDS = 0.5
# Where an Estimator's evaluation writes its events.
_FOLDER = "eval"


class Evaluation:
    """Evaluates checkpoints under the strategy of evaluation, with a model of its own.

    Args:
        strategy: Of evaluation; None is one device.
        steps: Batches of an evaluation; None is all.
        progress: Where to report.
    """

    def __init__(
        self,
        maker: ModelMaker,
        reader: ExampleReader,
        strategy: Optional[tf.distribute.Strategy],
        steps: Optional[int],
        folder: str,
        progress: ProgressWriter,
    ) -> None:
        self._reader = reader
        self._strategy = strategy or tf.distribute.get_strategy()
        self._steps = steps
        self._progress = progress
        self._curves = Curves(os.path.join(folder, _FOLDER))
        with self._strategy.scope():
            self._model = maker.make()
        self._step = tf.function(self._one_step)

    def evaluate(self, path: str) -> dict[str, float]:
        """Evaluates a checkpoint, and reports its metrics.

        Args:
            path: Of the checkpoint.

        Returns:
            The metrics by name: `accuracy`, and the mean `loss` of the examples, also as `average_loss`; NaN as well:
            one of a network that normalises batches and has seen few may recover.

        Raises:
            DataError: There is no example.
        """
        restore_weights(self._model, path)
        metrics = self._measure(self._steps)
        step = step_of(path)
        self._curves.write(step, metrics)
        self._curves.flush()
        self._progress.write(Event.EVALUATED, step=step, metrics=metrics)
        return metrics

    def names(self) -> list[str]:
        """Returns the names of the metrics that `evaluate` returns; of a first batch, as some are there only then.

        Raises:
            DataError: There is no example.
        """
        return sorted(self._measure(1))

    def _measure(self, steps: Optional[int]) -> dict[str, float]:
        """The metrics of so many batches, with the weights that the model has."""
        # Of a compiled model of the user's.
        self._model.reset_metrics()
        sums: dict[str, float] = {}
        returned: dict[str, tf.Tensor] = {}
        reported = 0.0
        for number, batch in enumerate(self._batches()):
            if number == steps:
                break
            summed, returned = self._step(batch)
            for name, value in summed.items():
                sums[name] = sums.get(name, 0.0) + float(value)
            if time.monotonic() - reported >= _EVERY_SECONDS:
                reported = time.monotonic()
                self._progress.write(Event.EVALUATING, batches=number + 1)
        examples = sums.pop("examples", 0.0)
        if not examples:
            raise DataError(
                "there is no example to evaluate with",
                expected="examples in the evaluation split",
                todo="check data.splits",
            )
        metrics = {name: value / examples for name, value in sums.items()}
        metrics["average_loss"] = metrics["loss"]
        metrics.update(self._model.own_metrics())
        # Of a test_step of the user's own: after the last batch, as in Keras.
        metrics.update({name: float(value) for name, value in returned.items()})
        return metrics

    def _batches(self) -> Any:
        mode = ModeKeys.EVAL
        return self._strategy.distribute_datasets_from_function(lambda context: self._reader.input_fn(mode, context))

    def _one_step(self, batch: Any) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """The sums over all replicas; and what a test_step of the user's own returns."""
        values = self._strategy.run(self._model.test_step, args=(batch,))
        returned = values.pop(RETURNED, {})
        summed = {name: self._strategy.reduce("SUM", value, axis=None) for name, value in values.items()}
        # A metric's result is the same in each replica.
        return summed, {name: self._strategy.experimental_local_results(each)[0] for name, each in returned.items()}


def require_number(metrics: Mapping[str, float], checkpoint: str) -> None:
    """Checks the evaluation of a checkpoint that is to be exported.

    Args:
        metrics: Of `Evaluation.evaluate`.

    Raises:
        TrainingError: The loss is not a number.
    """
    if math.isnan(metrics.get("loss", 0.0)):
        raise not_a_number(f"the loss of checkpoint {checkpoint}")
