"""Evaluates checkpoints, every example exactly once, for the curve and for the keeper's decisions."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Optional

import tensorflow as tf
from absl import logging

from tfx_estimator.components.trainer.best.keeper import Keeper
from tfx_estimator.components.trainer.checkpoint import step_of
from tfx_estimator.components.trainer.keras.curves import Curves
from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.keras.saving import restore_weights
from tfx_estimator.components.trainer.observers import not_a_number
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.model_fn.step.compiled_classifier import RETURNED
from tfx_estimator.model_fn.step.head import auc
from tfx_estimator.model_fn.step.keras_classifier import BY_SCORE
from tfx_estimator.pipeline.base.errors import DataError, TrainingError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.distribution import Distribution

_REPORT_SECONDS = _POLL_SECONDS = 0.5
# The subfolder of an Estimator's evaluation events.
_FOLDER = "eval"


class Evaluation:
    """Evaluates checkpoints under the strategy of evaluation, with a model of its own.

    Args:
        strategy: None is one device.
        steps: Batches of an evaluation; None is all.
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

        Returns:
            The metrics by name: `accuracy` of classes, `auc` of two of a table, and the mean `loss` of the examples,
            also as `average_loss`. They may be NaN: a network with batch normalisation that has seen few batches may
            recover.
        """
        restore_weights(self._model, path)
        metrics = self._measure(self._steps)
        step = step_of(path)
        self._curves.write(step, metrics)
        self._curves.flush()
        self._progress.write(Event.EVALUATED, step=step, metrics=metrics)
        return metrics

    def names(self) -> list[str]:
        """Returns the names of the metrics that `evaluate` returns, from a first batch: some exist only after one."""
        return sorted(self._measure(1))

    def _measure(self, steps: Optional[int]) -> dict[str, float]:
        """Returns the metrics of so many batches, with the model's current weights."""
        # Those of a user's compiled model.
        self._model.reset_metrics()
        sums: dict[str, Any] = {}
        returned: dict[str, tf.Tensor] = {}
        reported = 0.0
        for number, batch in enumerate(self._batches()):
            if number == steps:
                break
            summed, returned = self._step(batch)
            for name, value in summed.items():
                sums[name] = sums.get(name, 0.0) + value.numpy()
            if time.monotonic() - reported >= _REPORT_SECONDS:
                reported = time.monotonic()
                self._progress.write(Event.EVALUATING, batches=number + 1)
        examples, by_score = sums.pop("examples", 0.0), sums.pop(BY_SCORE, None)
        if not sums:
            raise DataError(
                "there is no example to evaluate with",
                expected="examples in the evaluation split",
                todo="check data.splits",
            )
        # Those of a batch may all weigh nothing.
        metrics = {name: float(value / examples) if examples else math.nan for name, value in sums.items()}
        if by_score is not None:
            metrics["auc"] = auc(by_score)
        metrics["average_loss"] = metrics["loss"]
        metrics.update(self._model.own_metrics())
        # Results of a user's test_step: those after the last batch, as in Keras.
        metrics.update({name: float(value) for name, value in returned.items()})
        return metrics

    def _batches(self) -> Any:
        mode = ModeKeys.EVAL
        return self._strategy.distribute_datasets_from_function(lambda context: self._reader.input_fn(mode, context))

    def _one_step(self, batch: Any) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Returns the sums over all replicas, and the results of a user's test_step."""
        values = self._strategy.run(self._model.test_step, args=(batch,))
        returned = values.pop(RETURNED, {})
        summed = {name: self._strategy.reduce("SUM", value, axis=None) for name, value in values.items()}
        # A metric's result is the same in each replica.
        return summed, {name: self._strategy.experimental_local_results(each)[0] for name, each in returned.items()}


@dataclass
class Evaluations:
    """The evaluations of a task during its training, or of an evaluator: for the curve, or for the keeper.

    Args:
        make: Makes the evaluation, once.
        folder: The folder of the checkpoints.
        keeper: Decides which checkpoint is exported, and when training ends; None if neither is declared.
        seconds: Without a keeper: the least time between the starts of two evaluations, and before the first one.
    """

    make: Callable[[], Evaluation]
    folder: str
    keeper: Optional[Keeper]
    seconds: float
    progress: ProgressWriter
    _started: float = field(init=False, default_factory=time.monotonic)
    # The last checkpoint whose loss is known to be a number.
    _seen: str = field(init=False, default="")

    @functools.cached_property
    def _evaluation(self) -> Evaluation:
        return self.make()

    @property
    def _latest(self) -> str:
        return tf.train.latest_checkpoint(self.folder) or ""

    @property
    def stop(self) -> bool:
        """True if an evaluation has ended the training before its last step."""
        return bool(self.keeper and self.keeper.stops)

    def prepare(self, step: int) -> None:
        """Makes the model of evaluation; evaluates the checkpoint that training resumes from, unless that was done.

        To call after the weights are initialised, and before training draws random numbers: making a model resets the
        seeds, and training must be the same as without an evaluation.
        """
        evaluation = self._evaluation
        if self.keeper:
            self.keeper.check_metrics(evaluation.names)
            self.keeper.resume_from(step)
            if not self.keeper.knows(step):
                self._evaluate(self._latest)

    def ends(self) -> bool:
        """Evaluates the checkpoint that was just saved, if due; returns True if training has ended."""
        if not self.keeper and time.monotonic() - self._started < self.seconds:
            return False
        self._started = time.monotonic()
        # In a thread of its own: `fit` calls this inside the scope of its strategy, where no other can be entered.
        with ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(self._evaluate, self._latest).result()
            except TrainingError as error:
                # Only the last checkpoint counts: before, batch normalisation may have seen too few batches.
                logging.warning("%s; training continues", error)
        return self.stop

    def follow(self, distribution: Distribution, last_step: int) -> str:
        """Evaluates each newest checkpoint, until the last one or the end of training; returns that one."""
        if self.keeper:
            self.keeper.check_metrics(self._evaluation.names)
        self.progress.write(Event.WAITING)
        time.sleep(distribution.start_delay_secs)
        latest, seen, started = "", "", 0.0
        while not self.stop and step_of(seen) < last_step:
            latest = self._latest
            early = time.monotonic() - started < distribution.seconds_between_evaluations
            if latest in ("", seen) or (early and step_of(latest) < last_step):
                time.sleep(_POLL_SECONDS)
                continue
            started = time.monotonic()
            try:
                # `choose` checks the last one.
                with contextlib.suppress(TrainingError):
                    self._evaluate(latest)
            except tf.errors.OpError:
                # The chief keeps only a few checkpoints, and may have removed this one meanwhile.
                if self._latest == latest:
                    raise
                continue
            seen = latest
        return latest

    def choose(self, last: str) -> str:
        """Returns the checkpoint to export, the last one or the best; evaluates the last one, unless that was done."""
        step = step_of(last)
        if not self.keeper:
            if self._seen != last:
                self._evaluate(last)
            return last
        if not self.keeper.knows(step):
            self._evaluate(last)
        chosen = self.keeper.choose(last, step)
        _require_number(chosen.metrics, chosen.checkpoint)
        return chosen.checkpoint

    def _evaluate(self, checkpoint: str) -> None:
        metrics = self._evaluation.evaluate(checkpoint)
        if self.keeper:
            self.keeper.evaluated(step_of(checkpoint), metrics, checkpoint)
        else:
            _require_number(metrics, checkpoint)
            self._seen = checkpoint


def _require_number(metrics: Mapping[str, float], checkpoint: str) -> None:
    if math.isnan(metrics.get("loss", 0.0)):
        raise not_a_number(f"the loss of checkpoint {checkpoint}")
