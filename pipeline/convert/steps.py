"""The next steps of an Estimator, with which a proof compares those of the converted model."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.convert.differences import part
from tfx_estimator.pipeline.convert.draws import Draws
from tfx_estimator.pipeline.convert.tensors import Reader

STEPS = 20
_TRIED, _ROUNDED, _AFTER = "tried", "rounded", "after"
# Each route's tensors with their places.
_P = TypeVar("_P", bound=Any)


@dataclass(frozen=True)
class Trained:
    """The Estimator after its next steps.

    Args:
        after: Prefix of its checkpoint.
        rounded: Of another, after the same steps from weights that differ in their last digit: its differences are how
            far rounding alone moves each tensor.
        losses: The losses of the steps.
        draws: Number of random operations in a step.
    """

    after: str
    rounded: str
    losses: list[float]
    draws: int

    def tensors(self, placed: Iterable[_P], reader: Reader) -> Iterator[tuple[_P, np.ndarray, np.ndarray, float]]:
        """Yields each placed tensor with its values before and after the steps, and the part that rounding moves."""
        after, other = Reader(self.after), Reader(self.rounded)
        for each in placed:
            before, old = (found.get_tensor(each.tensor.name) for found in (reader, after))
            yield each, before, old, part(before, old, other.get_tensor(each.tensor.name))


def opened(spec: tf.estimator.EstimatorSpec, checkpoint: str) -> tf.compat.v1.Session:
    """Opens a session over the default graph, restored as the Estimator restores it: by the spec's scaffold."""
    given = {"scaffold": spec.scaffold, "checkpoint_filename_with_path": checkpoint}
    return tf.compat.v1.train.SingularMonitoredSession(**given).raw_session()


def train(
    graph: tf.Graph,
    spec: tf.estimator.EstimatorSpec,
    checkpoint: str,
    feeds: Callable[[], Iterator[Mapping[Any, Any]]],
    draws: Draws,
    folder: str,
) -> Trained:
    """Trains the next steps, twice.

    Args:
        feeds: Reads the batches of the steps, by tensors of the graph.
        draws: Those of the graph.
        folder: For the checkpoints.
    """
    losses: dict[str, list[float]] = {}
    # The first tells which random operations a step has.
    for name, count in ((_TRIED, 1), (_ROUNDED, STEPS), (_AFTER, STEPS)):
        with graph.as_default():
            session = opened(spec, checkpoint)
            for each in tf.compat.v1.trainable_variables() if name == _ROUNDED else ():
                value = session.run(each)
                up = np.random.default_rng(value.size).random(value.shape) < 0.5
                each.load(np.nextafter(value, np.where(up, np.inf, -np.inf).astype(value.dtype)), session)
        losses[name] = []
        for draws.step, feed in enumerate(itertools.islice(feeds(), count)):
            losses[name].append(float(session.run((spec.loss, spec.train_op), feed)[0]))
        draws.keep_used()
        with graph.as_default():
            spec.scaffold.saver.save(session, os.path.join(folder, name), write_meta_graph=False, write_state=False)
        session.close()
    return Trained(os.path.join(folder, _AFTER), os.path.join(folder, _ROUNDED), losses[_AFTER], draws.count)
