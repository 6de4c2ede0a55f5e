"""The weights that the function of a network gave it: loaded from a file, assigned, or trained in the function.

Keras has them at once. In an Estimator's graph it would write them into a session of its own, which nobody trains in:
the function is called outside of it first, and what it gave there is what the graph's variables begin with.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.step.precision import stored
from tfx_estimator.pipeline.base.errors import UserCodeError

# The last part of the name, without the number that tells it from another of the graph, and the shape, of a variable.
_Kind = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class GivenWeights:
    """Weights for the variables of a network, by their places in its `weights`.

    Args:
        prefix: Of a checkpoint that this process keeps as long as it lives, with a tensor for each place.
        places: Of those that were given.
        kinds: Of all variables of the network.
    """

    prefix: str
    places: tuple[int, ...]
    kinds: tuple[_Kind, ...]

    def begin(self, network: tf.keras.Model) -> None:
        """Has the variables of an Estimator's graph begin with them; a checkpoint, or a declared start, comes first.

        Args:
            network: With all its variables, in the context of a replica.
        """
        variables = stored(network.weights)
        if (kinds := _kinds(variables)) != self.kinds:
            differ = [f"{one} and then {other}" for one, other in zip(self.kinds, kinds) if one != other]
            raise UserCodeError(
                "trainer.model: the function gives its network weights, and returned two different networks: "
                f"{differ[0] if differ else f'{len(self.kinds)} variables and then {len(kinds)}'}",
                expected="the same network from each call: for an Estimator's graph it is made once more",
                todo="set trainer.path: keras; or declare trainer.warm_start, in place of loading weights",
            )
        # Where the step is computed: the variables may be on another machine, which has not the file.
        with tf.device("/cpu:0"):
            values = [self._read(place, variables[place].dtype.base_dtype) for place in self.places]

        def replace(_: tf.distribute.Strategy) -> None:
            # Where a strategy has copies of a variable, they are initialised together; where it wraps one, that is.
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


class Made:
    """The variables that a function made, with what they began as."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[tf.Variable, Optional[bytes]]] = {}

    def add(self, variable: tf.Variable) -> None:
        """Remembers a variable."""
        self._made[id(variable)] = variable, _digest(variable)

    def changed(self) -> set[int]:
        """Returns the ids of those that are something else by now."""
        return {key for key, (variable, before) in self._made.items() if _digest(variable) != before}


@contextlib.contextmanager
def watching() -> Iterator[Made]:
    """Watches what variables are made, outside of a graph."""
    made = Made()

    def create(make: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        variable = make(**kwargs)
        made.add(variable)
        return variable

    with tf.variable_creator_scope(create):
        yield made


def keep(network: tf.keras.Model, given: set[int]) -> Optional[GivenWeights]:
    """Keeps the weights that a network was given.

    Args:
        network: With all its variables, outside of a graph.
        given: Of `Made.changed`, when the function had returned.

    Returns:
        None if there are none.
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
    return GivenWeights(prefix, tuple(places), _kinds(variables))


def _kinds(variables: Sequence[tf.Variable]) -> tuple[_Kind, ...]:
    # Outside of a graph, two weights of a layer may have one name.
    names = [re.sub(r"(_\d+)?(:\d+)?$", "", each.name.rpartition("/")[2]) for each in variables]
    return tuple((name, tuple(each.shape.as_list())) for name, each in zip(names, variables))


def _digest(variable: tf.Variable) -> Optional[bytes]:
    """Of the value; None where there is none yet."""
    try:
        with tf.init_scope():
            return hashlib.sha1(variable.numpy().tobytes(), usedforsecurity=False).digest()
    except (AttributeError, NotImplementedError, ValueError, tf.errors.FailedPreconditionError):
        return None
