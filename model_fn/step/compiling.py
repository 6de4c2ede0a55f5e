"""XLA compilation of a training step: all of it on one device, otherwise each replica's own computation.

XLA on CPU has no collective operations: the sums over replicas, and the optimizer after them, are not compiled. Neither
are they when the batch is computed in parts, whose order XLA would not keep.

Source: https://www.tensorflow.org/xla, and https://www.tensorflow.org/api_docs/python/tf/function on `jit_compile`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.layers import SynchronizedBatchNormalization
from tfx_estimator.model_fn.step.parts import Computed, Part
from tfx_estimator.model_fn.unconverted import unconverted
from tfx_estimator.pipeline.base.errors import UserCodeError

# In a dry run, the number of replicas of the training, which this process runs with fewer.
TRIED_FOR: list[int] = []


def takes_step(parts: int) -> bool:
    """True if a step is compiled with its optimizer; called in the context of the training strategy."""
    strategy = tf.distribute.get_strategy()
    alone = not tf.distribute.has_strategy() or isinstance(strategy, tf.distribute.OneDeviceStrategy)
    return alone and parts == 1


class Compiler:
    """Compiles the functions of one training, each only once, however often the calling code is traced."""

    def __init__(self, network: tf.keras.Model) -> None:
        self._network = network
        self._functions: dict[Hashable, Callable[..., Any]] = {}

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compiles a whole step, once for each shape of its arguments.

        Args:
            function: Takes and returns nests of tensors; its variables exist already.
        """
        return self._compiled("step", function)

    def part(self, compute: Callable[[Part], Computed]) -> Callable[[Part], Computed]:
        """Compiles the computation of a part: loss, gradients, and moving averages of batch normalisation."""

        def call(part: Part) -> Computed:
            def inner(features: dict[str, tf.Tensor], labels: tf.Tensor, share: Any) -> tuple[Any, ...]:
                found = compute(dataclasses.replace(part, features=features, labels=labels, share=share))
                # A tf.function runs its updates automatically.
                return found.loss, found.hits, list(found.gradients)

            # Each replica has its own variables. As a Python number, `share` would compile once for each value.
            context = tf.distribute.get_replica_context()
            key = context.replica_id_in_sync_group if context else 0
            share = None if part.share is None else tf.cast(part.share, tf.float32)
            return Computed(*self._compiled((str(key), part.first), inner)(part.features, part.labels, share))

        return call

    def _compiled(self, key: Hashable, function: Callable[..., Any]) -> Callable[..., Any]:
        if key not in self._functions:
            refuse_collectives(self._network, tf.distribute.get_strategy().num_replicas_in_sync)
            self._functions[key] = tf.function(unconverted(function), jit_compile=True, autograph=False)
        return self._functions[key]


def refuse_collectives(network: tf.keras.Model, replicas: int) -> None:
    """Refuses layers known to sum over replicas: TensorFlow's own error does not mention them."""
    for each in network.submodules if max((replicas, *TRIED_FOR)) > 1 else ():
        # Keras's synchronized layer has no class of its own.
        sums = isinstance(each, SynchronizedBatchNormalization) or getattr(each, "synchronized", None) is True
        if sums and each.trainable:
            raise UserCodeError(
                f"trainer.xla: the layer {each.name!r} ({type(each).__name__}) of the network sums over all replicas, "
                "and XLA compiles only what each replica computes alone",
                expected="one replica; or a network whose replicas exchange nothing but gradients",
                todo="set trainer.xla: false, or trainer.distribution.train.strategy: one_device",
            )
