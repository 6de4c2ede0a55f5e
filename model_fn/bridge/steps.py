"""The next steps of an Estimator."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.differences import part
from tfx_estimator.model_fn.bridge.draws import Draws
from tfx_estimator.model_fn.bridge.tensors import Placed, Reader
from tfx_estimator.pipeline.base.errors import UserCodeError

STEPS = 20
# What is compared runs on the CPU, which repeats itself; as in an Estimator's sessions, also what is placed on a GPU.
CONFIG = tf.compat.v1.ConfigProto(allow_soft_placement=True, device_count={"GPU": 0})
_TRIED, _ROUNDED, _AFTER = "tried", "rounded", "after"

# A number of steps, kind and place of a tensor, its values before and after these, and the part by which rounding alone
# moves it.
Moved = tuple[int, str, str, np.ndarray, np.ndarray, float]


@dataclass(frozen=True)
class Trained:
    """The Estimator after its next steps.

    Args:
        folder: Of checkpoints after the first step and after all, and after the same from weights that differ in their
            last digit, which shows how far rounding alone moves each tensor: in many networks each step doubles it.
        draws: Number of random operations in a step.
    """

    folder: str
    losses: list[float]
    draws: int
    trained: Sequence[str] = ()
    others: Sequence[str] = ()

    def tensors(self, placed: Sequence[Placed], reader: Reader) -> Iterator[Moved]:
        """Yields the placed tensors after the first step and after all; `reader` has their values before these."""
        for count in sorted({min(1, len(self.losses)), len(self.losses)} - {0}):
            readers = [reader, *(Reader(os.path.join(self.folder, f"{name}{count}")) for name in (_AFTER, _ROUNDED))]
            for each in placed:
                before, old, rounded = (found.get_tensor(each.tensor.name) * each.factor for found in readers)
                yield count, each.tensor.kind, each.place, before, old, part(before, old, rounded)


def require_shapes(checkpoint: str) -> None:
    """Refuses a checkpoint with other shapes than the default graph's, which resource variables do not check."""
    shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    if wrong := [
        f"{name} of shape {shapes[name]} is {shape} there"
        for name, shape in ((each.op.name, each.shape.as_list()) for each in tf.compat.v1.global_variables())
        if shapes.get(name, shape) != shape
    ]:
        raise UserCodeError(
            "\n".join(["the checkpoint does not match the Estimator's code:", *wrong]),
            expected="the shapes of the checkpoint",
            todo="use the code that created the Estimator when it trained, or name the checkpoint of this one",
        )


def opened(spec: tf.estimator.EstimatorSpec, checkpoint: str) -> tf.compat.v1.Session:
    """Opens a session over the default graph, restored as the Estimator restores it: by the spec's scaffold."""
    require_shapes(checkpoint)
    given = {"scaffold": spec.scaffold, "checkpoint_filename_with_path": checkpoint}
    return tf.compat.v1.train.SingularMonitoredSession(**given, config=CONFIG).raw_session()


def train(
    graph: tf.Graph,
    spec: tf.estimator.EstimatorSpec,
    checkpoint: str,
    feeds: Callable[[], Iterator[Mapping[Any, Any]]],
    draws: Draws,
    folder: str,
) -> Trained:
    """Trains the Estimator's next steps."""
    losses: list[float] = []
    with graph.as_default():
        session = opened(spec, checkpoint)
        trained = [each.op.name for each in tf.compat.v1.trainable_variables()]
        others = [each.op.name for each in tf.compat.v1.global_variables() if each.op.name not in trained]
    with contextlib.closing(session):
        # The first shows which random operations a step has.
        for name, counts in ((_TRIED, (1,)), (_ROUNDED, (1, STEPS)), (_AFTER, (1, STEPS))):
            with graph.as_default():
                # A session for each would optimise its graph again.
                spec.scaffold.saver.restore(session, checkpoint)
                session.run(spec.scaffold.local_init_op)
                for each in tf.compat.v1.trainable_variables() if name == _ROUNDED else ():
                    value = session.run(each)
                    each.load(np.nextafter(value, value + 1), session)
            losses.clear()
            given = enumerate(feeds())
            for count in counts:
                for draws.step, feed in itertools.islice(given, count - len(losses)):
                    losses.append(float(session.run((spec.loss, spec.train_op), feed)[0]))
                with graph.as_default():
                    path = os.path.join(folder, f"{name}{len(losses)}")
                    spec.scaffold.saver.save(session, path, write_meta_graph=False, write_state=False)
            draws.keep_used()
    return Trained(folder, losses, len(draws.made), trained, others)
