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
# The first step and the last one are trained alone as well: after many, a ReLU or a maximum that rounding turns moves
# all tensors, by up to some per cent.
COUNTS = (1, STEPS - 1, STEPS)
# What is compared runs on the CPU, which repeats itself; as in an Estimator's sessions, also what is placed on a GPU.
CONFIG = tf.compat.v1.ConfigProto(allow_soft_placement=True, device_count={"GPU": 0})
_TRIED, _ROUNDED, _AFTER = "tried", "rounded", "after"

# Kind and place of a tensor, its values before and after some steps, and the part by which rounding alone moves it.
Moved = tuple[str, str, np.ndarray, np.ndarray, float]


@dataclass(frozen=True)
class Trained:
    """The Estimator after its next steps.

    Args:
        folder: Of checkpoints after some steps, and after the same from weights that differ in their last digit, which
            shows how far rounding alone moves each tensor: in many networks each step doubles it.
        losses: The losses of the steps.
        draws: Number of random operations in a step.
        trained: The trained variables, in creation order.
        others: The graph's other variables.
    """

    folder: str
    losses: list[float]
    draws: int
    trained: Sequence[str] = ()
    others: Sequence[str] = ()

    @property
    def counts(self) -> list[int]:
        """The numbers of steps with checkpoints."""
        return [count for count in COUNTS if count < len(self.losses)] + [len(self.losses)] * bool(self.losses)

    def is_alone(self, count: int) -> bool:
        """Returns whether the step that ends at `count` can be trained alone, from the Estimator's values before it."""
        return count == 1 or count - 1 in self.counts

    def values(self, placed: Sequence[Placed], count: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the places, and the values after `count` steps."""
        reader = Reader(self._path(_AFTER, count))
        for each in placed:
            yield each.place, reader.get_tensor(each.tensor.name) * each.factor

    def tensors(self, placed: Sequence[Placed], reader: Reader, count: int) -> Iterator[Moved]:
        """Yields the placed tensors after `count` steps, and before these, or before the step that is trained alone.

        Args:
            reader: Has their values before all steps.
        """
        if count > 1 and self.is_alone(count):
            reader = Reader(self._path(_AFTER, count - 1))
        readers = [reader, *(Reader(self._path(name, count)) for name in (_AFTER, _ROUNDED))]
        for each in placed:
            before, old, rounded = (found.get_tensor(each.tensor.name) * each.factor for found in readers)
            yield each.tensor.kind, each.place, before, old, part(before, old, rounded)

    def _path(self, name: str, count: int) -> str:
        return os.path.join(self.folder, f"{name}{count}")


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
    """Opens a session over the default graph, restored as the Estimator restores it: by the spec's scaffold.

    Raises:
        UserCodeError: The graph has other shapes.
    """
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
    """Trains the Estimator's next steps.

    Args:
        feeds: Reads the batches, by tensors of the graph.
        draws: Those of the graph.
        folder: For the checkpoints.
    """
    losses: list[float] = []
    with graph.as_default():
        session = opened(spec, checkpoint)
        trained = [each.op.name for each in tf.compat.v1.trainable_variables()]
        others = [each.op.name for each in tf.compat.v1.global_variables() if each.op.name not in trained]

    def restore(path: str, is_rounded: bool) -> None:
        with graph.as_default():
            spec.scaffold.saver.restore(session, path)
            session.run(spec.scaffold.local_init_op)
            for each in tf.compat.v1.trainable_variables() if is_rounded else ():
                value = session.run(each)
                each.load(np.nextafter(value, value + 1), session)

    def save(name: str) -> str:
        with graph.as_default():
            path = os.path.join(folder, name)
            return spec.scaffold.saver.save(session, path, write_meta_graph=False, write_state=False)

    with contextlib.closing(session):
        # A session for each would optimise its graph again. The first shows which random operations a step has.
        for name, counts in ((_TRIED, COUNTS[:1]), (_ROUNDED, COUNTS[:-1]), (_AFTER, COUNTS)):
            restore(checkpoint, name == _ROUNDED)
            losses.clear()
            given = enumerate(feeds())
            for count in counts:
                for draws.step, feed in itertools.islice(given, count - len(losses)):
                    losses.append(float(session.run((spec.loss, spec.train_op), feed)[0]))
                save(f"{name}{len(losses)}")
            draws.keep_used()
        if len(losses) == STEPS:
            restore(os.path.join(folder, f"{_AFTER}{STEPS - 1}"), is_rounded=True)
            session.run(spec.train_op, feed)
            save(f"{_ROUNDED}{STEPS}")
    return Trained(folder, losses, len(draws.made), trained, others)
