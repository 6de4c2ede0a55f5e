"""Runs an Estimator on batches of its input_fns: what it predicts, and its next training steps."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.draws import Draws
from tfx_estimator.model_fn.bridge.kept.inputs import InputFn, placeholders
from tfx_estimator.model_fn.bridge.kept.optimizers import Applied, recorded
from tfx_estimator.model_fn.bridge.steps import CONFIG, Trained, require_shapes, train
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

LOGITS = "logits"


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch of an input_fn: arrays, or SparseTensorValues."""

    features: dict[str, Any]
    labels: Any

    def tensors(self) -> dict[str, Any]:
        """Returns the features as eager tensors."""
        return {name: _tensor(each) for name, each in self.features.items()}

    def label(self) -> Any:
        """Returns the labels as a tensor."""
        return _tensor(self.labels)


# Whose output it is, its name, the examples, and the output.
Answer = tuple[str, str, Batch, np.ndarray]
ESTIMATOR = "estimator"


@dataclasses.dataclass(frozen=True)
class Predicting:
    """A session with an Estimator's predictions."""

    session: Any
    graph: tf.Graph
    output: str
    _fetched: Any

    def answers(self, steps: Optional[int]) -> Iterator[Answer]:
        """Yields the batches with outputs, one at a time, since there may be many; `steps` None is all."""
        with contextlib.suppress(tf.errors.OutOfRangeError, StopIteration):
            for _ in itertools.count() if steps is None else range(steps):
                given, answer = self.session.run(self._fetched)
                yield ESTIMATOR, self.output, Batch(given, None), answer


def scores(spec: tf.estimator.EstimatorSpec) -> tuple[str, tf.Tensor]:
    """Returns the output of a canned Estimator to compare, and its name."""
    return LOGITS, spec.predictions[LOGITS if LOGITS in spec.predictions else "predictions"]


@contextlib.contextmanager
def predicting(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    input_fn: InputFn,
    names: Collection[str],
    chosen: Callable[[Any], tuple[str, tf.Tensor]] = scores,
) -> Iterator[Predicting]:
    """Opens a session at a checkpoint, on an evaluation, with `chosen` outputs; its graph is not the default here."""
    with contextlib.ExitStack() as stack:
        graph = stack.enter_context(tf.Graph().as_default())
        tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
        tf.compat.v1.train.create_global_step()
        features, _, hooks = estimator._get_features_and_labels_from_input_fn(input_fn, ModeKeys.EVAL)
        spec = estimator.model_fn(features, None, ModeKeys.PREDICT, estimator.config)
        require_shapes(checkpoint)
        output, answer = chosen(spec)
        given = {"checkpoint_filename_with_path": checkpoint, "config": CONFIG}
        creator = tf.compat.v1.train.ChiefSessionCreator(spec.scaffold, **given)
        session = tf.compat.v1.train.MonitoredSession(creator, hooks=hooks)
        stack.close()
        with session:
            yield Predicting(session, graph, output, ({name: features[name] for name in names}, answer))


@dataclasses.dataclass(frozen=True)
class Training:
    """An Estimator's training graph."""

    graph: tf.Graph
    spec: Any
    applied: list[Applied]
    given: Any
    _draws: Draws

    def feed(self, batch: Batch) -> dict[Any, Any]:
        """Returns what a session is fed for a batch."""
        features, labels = self.given
        pairs = [*((features[name], value) for name, value in batch.features.items()), (labels, batch.labels)]
        return {key: value for key, value in pairs if value is not None}

    def train(self, checkpoint: str, batches: Callable[[], Iterable[Batch]], folder: str) -> Trained:
        """Trains the next steps; `batches` reads their batches, and `folder` is for files."""
        return train(self.graph, self.spec, checkpoint, lambda: map(self.feed, batches()), self._draws, folder)


def training(
    estimator: tf.estimator.Estimator,
    types: Any,
    watch: Callable[[tf.Graph], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Training:
    """Makes the training graph; `watch` returns a context in which the model_fn is called."""
    draws = Draws()
    with tf.Graph().as_default() as graph:
        tf.compat.v1.train.create_global_step()
        given, _ = placeholders(types)
        with draws.fixed(), recorded(graph) as applied, watch(graph):
            # It may change its dict of features.
            own = tf.nest.map_structure(lambda each: each, given)
            spec = estimator.model_fn(*own, ModeKeys.TRAIN, estimator.config)
    return Training(graph, spec, applied, given, draws)


def _tensor(value: Any) -> Any:
    return tf.SparseTensor(*value) if isinstance(value, tf.compat.v1.SparseTensorValue) else tf.constant(value)
