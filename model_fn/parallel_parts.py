"""Parts of a batch that are computed at the same time, each op by one thread.

Several threads inside each op wait for each other at the end of it. Parts of a batch know nothing of each other until
their gradients are added up: where each of two CPUs computes half of the batch, a step of `cifar_cnn` takes 6 % less
CPU and an eighth less time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Optional

import tensorflow as tf

from tfx_estimator.model_fn.accumulation import Computed, Part, add, cut
from tfx_estimator.model_fn.layers import BY_BATCH
from tfx_estimator.pipeline.config.trainer import AUTO, TrainerSection
from tfx_estimator.pipeline.cpus import available_cpus
from tfx_estimator.pipeline.errors import UserCodeError

_OPTION = "trainer.parallel_parts"
# Their state is that of the data, adapted before training.
_ADAPTED = tf.keras.layers.experimental.preprocessing.PreprocessingLayer


def parts_here(section: TrainerSection) -> int:
    """Returns how many parts of a replica's batch this process computes at the same time.

    Args:
        section: The declared trainer.

    Returns:
        What is declared; `auto` is as many as there are CPUs for each replica of this process, or ops at the same time.
    """
    if not section.is_in_parallel_parts:
        return 1
    if section.parallel_parts != AUTO:
        return int(section.parallel_parts)
    train = section.distribution.train
    at_once = [available_cpus(), section.threads.inter_op, _number(os.environ.get("TF_NUM_INTEROP_THREADS"))]
    most = section.global_batch_size // (train.replicas * section.gradient_accumulation)
    return max(min(min(each for each in at_once if each) // train.devices.count, most), 1)


def in_parallel(compute: Callable[[Part], Computed], parts: int) -> Callable[[Part], Computed]:
    """Cuts what is computed into parts of equal size, to within one example, which wait for nothing of each other.

    Args:
        compute: Computes a part.
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


def having(layer: str) -> str:
    """Returns what a network has that follows batches, for `whole_notices`.

    Args:
        layer: Of `follows_batches`.
    """
    return f"has the layer {layer}, which follows batches"


def follows_batches(network: tf.keras.Model) -> str:
    """Names the first layer that normalises by a batch, or keeps a state that follows batches; empty if there is none.

    Args:
        network: Built; of one that is not, layers may be unknown yet.
    """
    for layer in network._flatten_layers():
        keeps = layer._non_trainable_weights and not isinstance(layer, _ADAPTED)
        if layer.trainable and (keeps or isinstance(layer, BY_BATCH)):
            return f"{layer.name} ({type(layer).__name__})"
    return ""


def parts_of(section: TrainerSection, follows: str) -> int:
    """Returns how many parts of a replica's batch are computed at the same time with a network.

    Args:
        section: The declared trainer.
        follows: Which of its layers follows batches: see `follows_batches`.

    Raises:
        UserCodeError: Several are declared, and one does.
    """
    parts = parts_here(section)
    if parts == 1 or not follows:
        return parts
    if section.parallel_parts == AUTO:
        return 1
    raise parts_of_state(parts, follows)


def parts_of_state(parts: int, follows: str) -> UserCodeError:
    """Returns the error of a network whose state would follow parts of batches, in any order.

    Args:
        parts: At the same time.
        follows: The layer that does; empty if it is not known.
    """
    return UserCodeError(
        f"{_OPTION}: {parts}, and {f'the layer {follows}' if follows else 'a layer'} of the network follows batches, "
        "which would be parts of them",
        expected="a network that computes each example by itself, without batch normalisation",
        todo=f"set {_OPTION}: 1; trainer.gradient_accumulation computes parts in turn",
    )


def refuse_parallel(section: TrainerSection, target: str, brings: str) -> None:
    """Refuses parts where the step is not ours; `auto` makes none there.

    Args:
        section: The declared trainer.
        target: `trainer.model`.
        brings: What it is instead of a network.

    Raises:
        UserCodeError: Several are declared.
    """
    if section.parallel_parts != AUTO and section.is_in_parallel_parts:
        raise UserCodeError(
            f"{_OPTION}: {section.parallel_parts}, and {target!r} {brings}: its batches would stay whole",
            expected="a function that returns a network, not compiled: loss and optimizer are then the declaration's",
            todo=f"remove {_OPTION}, or name such a function by trainer.model",
        )


def whole_notices(section: TrainerSection, why: str) -> list[str]:
    """Says, where it is so, that `auto` makes no parts, which leaves each op one thread.

    Args:
        section: The declared trainer.
        why: There are none: what the model is, or has.
    """
    threads = section.threads.intra_op or section.intra_op_threads
    if section.parallel_parts != AUTO or threads or parts_here(section) == 1:
        return []
    return [
        f"{_OPTION}: auto makes no parts of a batch, as {section.model} {why}, and each op has one thread: with "
        f"{_OPTION}: 1 it has one a CPU, which is faster"
    ]


def _number(text: Optional[str]) -> int:
    return int(text) if text and text.isdecimal() else 0
