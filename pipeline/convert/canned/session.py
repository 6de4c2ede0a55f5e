"""Runs a canned Estimator on batches of its input_fns: its logits, and its next training step."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator
from typing import Any, Optional

import numpy as np
import tensorflow as tf

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


@dataclasses.dataclass(frozen=True)
class Step:
    """A training step: its batch, its loss, and the checkpoint's tensors after it."""

    batch: Batch
    loss: float
    after: dict[str, np.ndarray]


def first_batch(estimator: tf.estimator.Estimator, input_fn: InputFn) -> Batch:
    """Returns one batch, without the Estimator's graph."""
    with tf.Graph().as_default():
        tf.compat.v1.train.create_global_step()
        features, labels, hooks = _inputs(estimator, input_fn, ModeKeys.TRAIN)
        with tf.compat.v1.train.MonitoredSession(hooks=hooks) as session:
            return _batch(session.run(_fetches(features, labels)))


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


def step(estimator: tf.estimator.Estimator, checkpoint: str, input_fn: InputFn) -> Step:
    """Trains the next step."""
    with _session(estimator, checkpoint, input_fn, ModeKeys.TRAIN) as (session, spec, features, labels):
        batch, loss, _ = session.run((_fetches(features, labels), spec.loss, spec.train_op))
        after: dict[str, list[np.ndarray]] = {}
        # A partitioned variable is saved as one.
        for variable in session.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
            slice_info = getattr(variable, "_save_slice_info", None)
            name = slice_info.full_name if slice_info else variable.name.partition(":")[0]
            after.setdefault(name, []).append(session.run(variable))
        return Step(_batch(batch), float(loss), {name: _whole(parts) for name, parts in after.items()})


def _whole(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


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
