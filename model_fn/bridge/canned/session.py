"""Runs a canned Estimator on batches of its input_fns: its logits, and its next training steps."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.draws import Draws
from tfx_estimator.model_fn.bridge.steps import Trained, train
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

InputFn = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch of an input_fn.

    Args:
        features: Arrays, or SparseTensorValues.
        labels: None if there are none.
    """

    features: dict[str, Any]
    labels: Any

    def tensors(self) -> dict[str, Any]:
        """Returns the features as eager tensors."""
        return {name: _tensor(each) for name, each in self.features.items()}

    def label(self) -> Any:
        """Returns the labels as a tensor."""
        return _tensor(self.labels)


def batches(estimator: tf.estimator.Estimator, input_fn: InputFn, count: int) -> list[Batch]:
    """Returns the first batches, or all if there are fewer, without the Estimator's graph."""
    found: list[Batch] = []
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
        tf.compat.v1.train.create_global_step()
        features, labels, hooks = _inputs(estimator, input_fn, ModeKeys.TRAIN)
        ends = contextlib.suppress(tf.errors.OutOfRangeError, StopIteration)
        with tf.compat.v1.train.MonitoredSession(hooks=hooks) as session, ends:
            while len(found) < count:
                found.append(_batch(session.run(_fetches(features, labels))))
    return found


@contextlib.contextmanager
def logits(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    input_fn: InputFn,
    steps: Optional[int],
    names: Collection[str],
) -> Iterator[Iterator[tuple[Batch, np.ndarray]]]:
    """Yields an iterator of an evaluation's batches with logits, one at a time, since there may be many.

    Args:
        steps: Steps of the EvalSpec: None is all batches.
        names: Names of the features to keep: batches may have other, large ones.
    """
    with _session(estimator, checkpoint, input_fn, ModeKeys.PREDICT) as (session, spec, features, _):
        predictions = spec.predictions
        fetched = predictions["logits" if "logits" in predictions else "predictions"]
        given = _fetches({name: features[name] for name in names}, None)

        def answers() -> Iterator[tuple[Batch, np.ndarray]]:
            with contextlib.suppress(tf.errors.OutOfRangeError, StopIteration):
                for _ in itertools.count() if steps is None else range(steps):
                    batch, answer = session.run((given, fetched))
                    yield _batch(batch), answer

        yield answers()


def next_steps(
    estimator: tf.estimator.Estimator, checkpoint: str, input_fn: InputFn, given: Sequence[Batch], folder: str
) -> Trained:
    """Trains the next steps on batches of the input_fn; `folder` is for files."""
    draws = Draws()
    with tf.Graph().as_default() as graph:
        tf.compat.v1.train.create_global_step()
        # Only their types and shapes count: they are fed.
        features, labels, _ = _inputs(estimator, input_fn, ModeKeys.TRAIN)
        with draws.fixed():
            spec = estimator.model_fn(features, labels, ModeKeys.TRAIN, estimator.config)

    def feeds() -> Iterator[dict[Any, Any]]:
        for each in given:
            pairs = [*((features[name], value) for name, value in each.features.items()), (labels, each.labels)]
            yield {key: value for key, value in pairs if value is not None}

    return train(graph, spec, checkpoint, feeds, draws, folder)


@contextlib.contextmanager
def _session(
    estimator: tf.estimator.Estimator, checkpoint: str, input_fn: InputFn, mode: str
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Opens a session with the Estimator's graph at a checkpoint; the graph is not the default in its context."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(tf.Graph().as_default())
        tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
        tf.compat.v1.train.create_global_step()
        # Predictions on the examples of the evaluation.
        features, labels, hooks = _inputs(estimator, input_fn, ModeKeys.EVAL if mode == ModeKeys.PREDICT else mode)
        spec = estimator.model_fn(features, None if mode == ModeKeys.PREDICT else labels, mode, estimator.config)
        creator = tf.compat.v1.train.ChiefSessionCreator(spec.scaffold, checkpoint_filename_with_path=checkpoint)
        opened = tf.compat.v1.train.MonitoredSession(creator, hooks=hooks)
        stack.close()
        with opened as session:
            yield session, spec, features, labels


def _inputs(estimator: tf.estimator.Estimator, input_fn: InputFn, mode: str) -> tuple[Any, Any, Any]:
    """Calls an input_fn like the Estimator."""
    return estimator._get_features_and_labels_from_input_fn(input_fn, mode)


def _fetches(features: Any, labels: Any) -> dict[str, Any]:
    return {"features": features, "labels": labels} if labels is not None else {"features": features}


def _batch(found: dict[str, Any]) -> Batch:
    return Batch(found["features"], found.get("labels"))


def _tensor(value: Any) -> Any:
    return tf.SparseTensor(*value) if isinstance(value, tf.compat.v1.SparseTensorValue) else tf.constant(value)
