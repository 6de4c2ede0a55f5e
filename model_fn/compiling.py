"""A training step that XLA compiles: as a whole where one device trains, and else what a replica computes by itself.

XLA on CPU has no operations that replicas talk by: what is added up over them, and the optimizer after it, stay as they
are. So do they where the batch is computed in parts, whose order XLA would not keep.

Source: https://www.tensorflow.org/xla, and https://www.tensorflow.org/api_docs/python/tf/function on `jit_compile`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.accumulation import Computed, Part
from tfx_estimator.model_fn.layers import SynchronizedBatchNormalization
from tfx_estimator.pipeline.base.errors import UserCodeError

# Of TensorFlow's error, where a layer adds up over the replicas.
_TALKS = "merge_call"
# Replicas of the trainings that are being tried.
_tried_for: list[int] = []


@contextlib.contextmanager
def tried_for(replicas: int) -> Iterator[None]:
    """Compiles nothing inside that could not be compiled for the training which is tried with fewer replicas."""
    # Of the process, since an Estimator trains in threads of its own.
    _tried_for.append(replicas)
    try:
        yield
    finally:
        _tried_for.pop()


def takes_step(parts: int) -> bool:
    """Tells whether a step is compiled with its optimizer; in the context of the strategy that trains.

    Args:
        parts: Of a batch: see `accumulation.in_turn`.
    """
    strategy = tf.distribute.get_strategy()
    alone = not tf.distribute.has_strategy() or isinstance(strategy, tf.distribute.OneDeviceStrategy)
    return alone and parts == 1


class Compiler:
    """Compiles the functions of one training, each of them once, however often the code around it is traced."""

    def __init__(self, network: tf.keras.Model) -> None:
        self._network = network
        self._functions: dict[Hashable, Callable[..., Any]] = {}

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compiles a whole step.

        Args:
            function: Takes and returns nests of tensors; what variables it needs are there already.

        Returns:
            The same function, compiled where it runs, once for each shape of its arguments; it raises a UserCodeError
            where a layer would add up over the replicas of the training that is tried.
        """
        return self._compiled("step", function)

    def part(self, compute: Callable[[Part], Computed]) -> Callable[[Part], Computed]:
        """Compiles what computes a part of a batch: loss and gradients, and moving averages of batch normalisation.

        Args:
            compute: As of `accumulation.in_turn`.

        Returns:
            The same; it raises a UserCodeError where a layer adds up over the replicas.
        """

        def call(part: Part) -> Computed:
            def inner(features: dict[str, tf.Tensor], labels: tf.Tensor, share: Any) -> tuple[Any, ...]:
                found = compute(dataclasses.replace(part, features=features, labels=labels, share=share))
                # A function does its updates by itself.
                return found.loss, found.hits, list(found.gradients)

            # Replicas have variables of their own. A number would be compiled for each value that it has.
            context = tf.distribute.get_replica_context()
            key = context.replica_id_in_sync_group if context else 0
            share = None if part.share is None else tf.cast(part.share, tf.float32)
            return Computed(*self._compiled((str(key), part.first), inner)(part.features, part.labels, share))

        return call

    def _compiled(self, key: Hashable, function: Callable[..., Any]) -> Callable[..., Any]:
        if key not in self._functions:
            _refuse_talking(self._network)
            self._functions[key] = tf.function(function, jit_compile=True, autograph=False)
        return functools.partial(_call, self._functions[key])


def _call(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except RuntimeError as error:
        if _TALKS not in str(error):
            raise
        raise _talking("such as SynchronizedBatchNormalization") from error


def _refuse_talking(network: tf.keras.Model) -> None:
    """Looks for the layers that are known to add up over replicas, where there are several, or will be."""
    if max(tf.distribute.get_strategy().num_replicas_in_sync, *_tried_for, 1) == 1:
        return
    for each in network.submodules:
        # Keras's has no class of its own for it.
        adds_up = isinstance(each, SynchronizedBatchNormalization) or getattr(each, "synchronized", None) is True
        if adds_up and each.trainable:
            raise _talking(f"{each.name!r} ({type(each).__name__})")


def _talking(which: str) -> UserCodeError:
    return UserCodeError(
        f"trainer.xla: the network has a layer that adds up over all replicas, {which}, and XLA compiles what one "
        "replica computes by itself",
        expected="one replica; or a network whose replicas talk through their gradients alone",
        todo="set trainer.xla: false, or trainer.distribution.train.strategy: one_device",
    )


def refuse_xla(xla: bool, target: str, brings: str) -> None:
    """Refuses to compile a step that is not ours.

    Args:
        target: `trainer.model`.
        brings: What it is instead of a network.

    Raises:
        UserCodeError: The step is to be compiled.
    """
    if xla:
        raise UserCodeError(
            f"trainer.xla: true, and {target!r} {brings}, which has a training step of its own",
            expected="a function that returns a network, not compiled: the built-in step then trains it",
            todo="remove trainer.xla, or name such a function by trainer.model",
        )
