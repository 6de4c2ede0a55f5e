"""Compares a kept training with the Estimator: what it predicts, evaluates and trains in a fresh process."""

from __future__ import annotations

import copy
import dataclasses
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge import fresh
from tfx_estimator.model_fn.bridge.differences import MOST_OF_STEPS, difference, part
from tfx_estimator.model_fn.bridge.kept import inputs, process, seeds
from tfx_estimator.model_fn.bridge.kept.graphs import TRAIN, call, opened
from tfx_estimator.model_fn.bridge.proof import Proof
from tfx_estimator.model_fn.bridge.session import ESTIMATOR
from tfx_estimator.model_fn.bridge.steps import CONFIG
from tfx_estimator.model_fn.bridge.trial import judge

STEP, CUT, LOSS = "step", "cut", "loss"
Values = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Trial:
    """The Estimator at a checkpoint."""

    estimator: Any
    checkpoint: str
    types: Any
    batches: list[Any]
    eval_types: Any
    eval_batches: list[Any]

    def compare(self, folder: str) -> tuple[Proof, bool]:
        """Returns the proof, and whether the cut step trains as the whole one; `folder` is the written one."""
        with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
            request = os.path.abspath(folder), self.types, self.batches, self.eval_batches
            found = fresh.ask(fresh.alone(process.__file__), request)
            with seeds.fixed():
                predictions = self._predictions(scratch) if found["predictions"] else []
            with seeds.fixed():
                metrics = self._metrics(scratch) if found["metrics"] else {}
        worst, differ, examples = {ESTIMATOR: 0.0}, 0, 0
        for old, new in zip(predictions, found["predictions"], strict=True):
            old = {name: inputs.by_text(old)[name] for name in new} if isinstance(new, dict) else old
            for one, other in zip(tf.nest.flatten(old), tf.nest.flatten(new), strict=True):
                if np.issubdtype(one.dtype, np.floating):
                    worst[ESTIMATOR] = max(worst[ESTIMATOR], difference(one, other))
                else:
                    differ += int(np.any((one != other).reshape(len(one), -1), axis=1).sum())
            examples += len(tf.nest.flatten(old)[0])
        if metrics:
            numbers = {name: each for name, each in found["metrics"].items() if np.issubdtype(each.dtype, np.number)}
            worst["metrics"] = max(difference(metrics[name], each) for name, each in numbers.items())
        before, losses, after = self._trained()
        moved = {part: _moved(before, losses, after, *found[part]) for part in (STEP, CUT) if part in found}
        rounded = dict[str, float]()
        if not all(each <= MOST_OF_STEPS for part in moved.values() for each in part.values()):
            # In some networks each step doubles what rounding changes, and some differ from themselves.
            rounded = _moved(before, losses, after, *self._trained(is_rounded=True)[1:])
        judged = {
            part: judge(
                (LOSS if name == LOSS else "variable", name, one, rounded.get(name, 0.0)) for name, one in each.items()
            )
            for part, each in moved.items()
        }
        judged[STEP]["next_steps"][LOSS] = moved[STEP][LOSS]
        tensors = {"variable": len(after)}
        more = {"compared": "predictions", "tensors": tensors, "steps": len(losses), **judged[STEP]}
        return Proof(examples, worst, differ, **more), CUT in judged and not judged[CUT]["wrong"]

    def _trained(self, is_rounded: bool = False) -> tuple[Values, list[float], Values]:
        """Trains the next steps in a session; returns the variables before, the losses, and the variables after."""
        called = call(self.estimator, self.types, TRAIN)
        variables = {each.op.name: each for each in called.graph.get_collection("variables")}
        losses = []
        with opened(called, self.checkpoint) as session:
            before = session.run(variables)
            for name in [each.op.name for each in tf.compat.v1.trainable_variables() if is_rounded]:
                variables[name].load(np.nextafter(before[name], before[name] + 1), session)
            for feed in _feeds(called.inputs, self.batches):
                losses.append(float(session.run((called.spec.loss, called.spec.train_op), feed)[0]))
            return before, losses, session.run(variables)

    def _predictions(self, scratch: str) -> list[Any]:
        batches = [(features, None) for features, _ in self.eval_batches]
        estimator, given = self._elsewhere(scratch), _Given(self.eval_types, batches)
        return list(
            estimator.predict(given, hooks=[given], checkpoint_path=self.checkpoint, yield_single_examples=False)
        )

    def _metrics(self, scratch: str) -> dict[str, Any]:
        estimator, given = self._elsewhere(scratch), _Given(self.eval_types, self.eval_batches)
        return estimator.evaluate(given, len(self.eval_batches), [given], self.checkpoint)

    def _elsewhere(self, scratch: str) -> Any:
        """Returns the Estimator with another model_dir, since an evaluation writes there, and on the CPU."""
        copied = copy.copy(self.estimator)
        copied._model_dir, copied._session_config = scratch, CONFIG
        return copied


class _Given(tf.compat.v1.train.SessionRunHook):
    """An input_fn of given batches, and the hook that feeds them."""

    def __init__(self, types: Any, batches: Sequence[Any]) -> None:
        self._types, self._batches = types, batches
        self._feeds: Iterator[Any] = iter(())

    def __call__(self, params: Any = None) -> Any:
        made, names = inputs.placeholders(self._types)
        self._feeds = _feeds(names, self._batches)
        return made

    def before_run(self, run_context: Any) -> Any:
        """Feeds the next batch; after the last, a prediction ends."""
        feed = next(self._feeds, None)
        if feed is None:
            raise tf.errors.OutOfRangeError(None, None, "there is no further batch")
        return tf.compat.v1.train.SessionRunArgs(None, feed)


def _feeds(placeholders: dict[str, tf.Tensor], batches: Iterable[Any]) -> Iterator[dict[tf.Tensor, Any]]:
    for each in batches:
        yield {placeholders[name]: value for name, value in inputs.named(each).items()}


def _moved(
    before: Values, losses: list[float], after: Values, new_losses: list[float], new: Values
) -> dict[str, float]:
    """Returns the differences after the next steps, by variable, and of the losses."""
    found = {name: part(before[name], each, new[name]) for name, each in after.items()}
    return {**found, LOSS: difference(np.array(losses), np.array(new_losses))}
