"""Parts of a batch that are computed at the same time.

Several threads inside each op wait for each other at the end of it. Parts of a batch know nothing of each other until
their gradients are added up: where each of two CPUs computes half of the batch, a step of `cifar_cnn` takes 8 % less
CPU and a seventh less time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import tensorflow as tf

from tfx_estimator.model_fn.accumulation import Computed, Part, add, cut
from tfx_estimator.model_fn.layers import BY_BATCH
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.parts import AUTO
from tfx_estimator.pipeline.config.trainer import TrainerSection

_OPTION = "trainer.parallel_parts"
# Their state is that of the data, adapted before training.
_ADAPTED = tf.keras.layers.experimental.preprocessing.PreprocessingLayer


def in_parallel(compute: Callable[[Part], Computed], parts: int) -> Callable[[Part], Computed]:
    """Cuts what is computed into parts of equal size, to within one example, which wait for nothing of each other.

    Args:
        parts: How many; one is the whole.

    Returns:
        Computes the same of several parts, and adds up what they contribute.
    """
    if parts == 1:
        return compute

    def call(whole: Part) -> Computed:
        total: Optional[Computed] = None
        for number in range(parts):
            part = cut(whole.features, whole.labels, number, parts, _OPTION)
            total = add(total, compute(part.within(whole)))
        assert total is not None
        return total

    return call


def refuse_state(parts: int, network: tf.keras.Model) -> UserCodeError:
    """Returns the error of a network whose step assigns something: it would follow parts of batches, in any order."""
    layers = [each for each in network._flatten_layers() if each.trainable]
    states = [each for each in layers if each._non_trainable_weights and not isinstance(each, _ADAPTED)]
    follows = [*(each for each in layers if isinstance(each, BY_BATCH)), *states]
    which = f"the layer {follows[0].name} ({type(follows[0]).__name__})" if follows else "a layer"
    return UserCodeError(
        f"{_OPTION}: {parts}, and {which} of the network follows batches, which would be parts of them",
        expected="a network that computes each example by itself, without batch normalisation",
        todo=f"set {_OPTION}: 1; trainer.gradient_accumulation computes parts in turn",
    )


def refuse_parallel(section: TrainerSection, target: str, brings: str) -> None:
    """Refuses parts where the step is not ours; `auto` makes none there.

    Args:
        target: `trainer.model`.
        brings: What it is instead of a network.

    Raises:
        UserCodeError: Several are declared.
    """
    if section.parallel_parts != AUTO and int(section.parallel_parts) > 1:
        raise UserCodeError(
            f"{_OPTION}: {section.parallel_parts}, and {target!r} {brings}: its batches would stay whole",
            expected="a function that returns a network, not compiled: loss and optimizer are then the declaration's",
            todo=f"remove {_OPTION}, or name such a function by trainer.model",
        )
