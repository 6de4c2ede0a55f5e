"""Weights that a network's function sets: loaded from a file, assigned, or trained in the function.

With Keras nothing needs to be done. In an Estimator's graph, Keras would write them into a session of its own, which is
not the one that trains: the function is first called eagerly, and its weights initialise the graph's variables.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.step.precision import stored


@dataclass(frozen=True)
class GivenWeights:
    """Weights for the variables of a network, by their indices in its `weights`.

    Args:
        prefix: Prefix of a checkpoint, deleted when this process exits, with a tensor for each index.
        places: Indices of the weights that the function set.
    """

    prefix: str
    places: tuple[int, ...]

    def begin(self, network: tf.keras.Model) -> None:
        """Initialises the variables of an Estimator's graph; a checkpoint or a declared warm start overrides it.

        Args:
            network: With all its variables, in replica context.
        """
        variables = stored(network.weights)
        # On the worker: the variables may be on another machine, without the file.
        with tf.device("/cpu:0"):
            values = [self._read(place, variables[place].dtype.base_dtype) for place in self.places]

        def replace(_: tf.distribute.Strategy) -> None:
            # The initializer is that of a mirrored variable as a whole, or of a wrapped variable itself.
            known = {each.name: each for each in tf.compat.v1.global_variables()}
            for place, value in zip(self.places, values):
                value.set_shape(variables[place].shape)
                assigned = tf.group(tf.nest.flatten(variables[place].assign(value, read_value=False)))
                initialised = known[variables[place].name]
                getattr(initialised, "_v", initialised)._initializer_op = assigned

        tf.distribute.get_replica_context().merge_call(replace)

    def _read(self, place: int, dtype: tf.DType) -> tf.Tensor:
        found = tf.raw_ops.RestoreV2(
            prefix=self.prefix, tensor_names=[str(place)], shape_and_slices=[""], dtypes=[dtype]
        )
        return found[0]


class CreatedVariables:
    """The variables that a function created, with digests of their initial values."""

    def __init__(self) -> None:
        self._created: dict[int, tuple[tf.Variable, Optional[bytes]]] = {}

    def add(self, variable: tf.Variable) -> None:
        """Records a variable."""
        self._created[id(variable)] = variable, _digest(variable)

    def changed(self) -> set[int]:
        """Returns the ids of those whose value has changed since."""
        return {key for key, (variable, before) in self._created.items() if _digest(variable) != before}


@contextlib.contextmanager
def watching() -> Iterator[CreatedVariables]:
    """Records the variables that are created in this context, in eager mode."""
    created = CreatedVariables()

    def create(make: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        variable = make(**kwargs)
        created.add(variable)
        return variable

    with tf.variable_creator_scope(create):
        yield created


def keep(network: tf.keras.Model, given: set[int]) -> Optional[GivenWeights]:
    """Saves the weights that a network's function set; returns None if it set none.

    Args:
        network: With all its variables, in eager mode.
        given: `CreatedVariables.changed` at the function's return.
    """
    variables = stored(network.weights)
    places = [place for place, each in enumerate(variables) if id(each) in given]
    if not places:
        return None
    folder = tempfile.mkdtemp(prefix="tfx-estimator-given-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    prefix = os.path.join(folder, "weights")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[str(place) for place in places],
        shape_and_slices=[""] * len(places),
        tensors=[variables[place].read_value() for place in places],
    )
    return GivenWeights(prefix, tuple(places))


def _digest(variable: tf.Variable) -> Optional[bytes]:
    """Returns a digest of the value; None if there is none yet."""
    try:
        with tf.init_scope():
            return hashlib.sha1(variable.numpy().tobytes(), usedforsecurity=False).digest()
    except (AttributeError, NotImplementedError, ValueError, tf.errors.FailedPreconditionError):
        return None
