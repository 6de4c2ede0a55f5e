"""A training step that XLA compiles: as a whole where one device trains, and else what a replica computes by itself.

XLA on CPU has no operations that replicas talk by: what is added up over them, and the optimizer after it, stay as they
are. So do they where the batch is computed in parts, whose order XLA would not keep.

Source: https://www.tensorflow.org/xla, and https://www.tensorflow.org/api_docs/python/tf/function on `jit_compile`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.layers import SynchronizedBatchNormalization
from tfx_estimator.model_fn.step.parts import Computed, Part
from tfx_estimator.pipeline.base.errors import UserCodeError

# Replicas of the training that this process tries with fewer.
TRIED_FOR: list[int] = []


def takes_step(parts: int) -> bool:
    """Tells whether a step is compiled with its optimizer; in the context of the strategy that trains."""
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
            The same function, compiled where it runs, once for each shape of its arguments.
        """
        return self._compiled("step", function)

    def part(self, compute: Callable[[Part], Computed]) -> Callable[[Part], Computed]:
        """Compiles what computes a part of a batch: loss and gradients, and moving averages of batch normalisation."""

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
            refuse_talking(self._network, tf.distribute.get_strategy().num_replicas_in_sync)
            self._functions[key] = tf.function(function, jit_compile=True, autograph=False)
        return self._functions[key]


def refuse_talking(network: tf.keras.Model, replicas: int) -> None:
    """Refuses layers that are known to add up over replicas: TensorFlow does so in words that say nothing of them."""
    for each in network.submodules if max((replicas, *TRIED_FOR)) > 1 else ():
        # Keras's has no class of its own for it.
        adds_up = isinstance(each, SynchronizedBatchNormalization) or getattr(each, "synchronized", None) is True
        if adds_up and each.trainable:
            raise UserCodeError(
                f"trainer.xla: the layer {each.name!r} ({type(each).__name__}) of the network adds up over all "
                "replicas, and XLA compiles what one replica computes by itself",
                expected="one replica; or a network whose replicas talk through their gradients alone",
                todo="set trainer.xla: false, or trainer.distribution.train.strategy: one_device",
            )
