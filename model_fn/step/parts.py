"""A batch that is computed in parts: in turn, in less memory, or at the same time, in less time.

In turn: a part begins when the one before it is done, so that the memory of one part's activations is enough for all.
There is no variable in which the gradients are gathered: under central_storage it would be silently wrong.

At the same time: several threads inside each op wait for each other at the end of it, and parts know nothing of each
other until their gradients are added up. Where each of two CPUs computes half of the batch, a step of `cifar_cnn` takes
8 % less CPU and a seventh less time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.model_fn.layers import BY_BATCH
from tfx_estimator.pipeline.base.errors import UserCodeError

Features = dict[str, tf.Tensor]
IN_TURN, AT_ONCE = "trainer.gradient_accumulation", "trainer.parallel_parts"
# Their state is that of the data, adapted before training.
_ADAPTED = tf.keras.layers.experimental.preprocessing.PreprocessingLayer


@dataclass(frozen=True)
class Part:
    """A part of a replica's batch, or all of it.

    Args:
        features: Of its examples, each [part, ...].
        labels: int64, [part].
        share: What part of the batch it is, scalar; None is all of it.
        first: Does no other come before it.
    """

    features: Features
    labels: tf.Tensor
    share: Optional[Union[float, tf.Tensor]] = None
    first: bool = True


@dataclass(frozen=True)
class Computed:
    """What a part contributes to the update, or all parts together.

    Args:
        loss: Its part of the global loss, scalar.
        hits: How many of its examples are classified rightly, scalar of the loss's dtype.
        gradients: Of the loss, one a variable; None where it does not depend on it.
        updates: Ops that belong to the step, such as moving averages of batch normalisation, in an Estimator's graph.
    """

    loss: tf.Tensor
    hits: tf.Tensor
    gradients: Sequence[Any]
    updates: Sequence[tf.Operation] = field(default=())

    @property
    def operations(self) -> list[Any]:
        """What is done when it is."""
        return [self.loss, self.hits, *(each for each in self.gradients if each is not None), *self.updates]


def in_parts(compute: Callable[[Part], Computed], parts: int, option: str) -> Callable[[Part], Computed]:
    """Cuts what is computed into parts of equal size, to within one example, and adds up what they contribute."""
    if parts == 1:
        return compute

    def call(whole: Part) -> Computed:
        total: Optional[Computed] = None
        for number in range(parts):
            with tf.control_dependencies(total.operations if total and option == IN_TURN else []):
                total = add(total, compute(cut(whole, number, parts, option)))
        assert total is not None
        return total

    return call


def cut(whole: Part, number: int, parts: int, option: str) -> Part:
    """Cuts a part out of a batch, or out of a part, all of which are of equal size, to within one example."""
    if parts == 1:
        return whole
    size = whole.labels.shape[0] or tf.shape(whole.labels)[0]
    if isinstance(size, int) and size < parts:
        raise UserCodeError(
            f"{option}: each replica has {size} examples of a step, too few for {parts} parts",
            expected=f"at most {size}",
            todo="lower it, or raise trainer.global_batch_size, which is the batch of an update",
        )
    begin, end = size * number // parts, size * (number + 1) // parts
    share = (end - begin) / size
    return replace(
        whole,
        features={name: _rows(each, begin, end) for name, each in whole.features.items()},
        labels=whole.labels[begin:end],
        share=share if whole.share is None else whole.share * share,
        first=whole.first and not number,
    )


def _rows(feature: Any, begin: Any, end: Any) -> Any:
    """Those of a part: of a dense or a ragged tensor, or of a sparse one, which has no slices."""
    if not isinstance(feature, tf.SparseTensor):
        return feature[begin:end]
    others = feature.dense_shape[1:]
    first, count = (tf.cast(tf.reshape(each, [1]), tf.int64) for each in (begin, end - begin))
    part = tf.sparse.slice(feature, tf.concat([first, tf.zeros_like(others)], 0), tf.concat([count, others], 0))
    # A layer may need to know how many columns there are, before any step.
    part.set_shape([end - begin if isinstance(end, int) else None, *feature.shape[1:]])
    return part


def add(total: Optional[Computed], more: Computed) -> Computed:
    """Adds what a part contributes."""
    # Rows that a part does not touch may be of another's.
    gradients = [tf.convert_to_tensor(each) if isinstance(each, tf.IndexedSlices) else each for each in more.gradients]
    if total is None:
        return replace(more, gradients=gradients)
    sums = [_sum(one, other) for one, other in zip(total.gradients, gradients)]
    return Computed(total.loss + more.loss, total.hits + more.hits, sums, more.updates)


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def refuse_state(parts: int, network: tf.keras.Model) -> UserCodeError:
    """Returns the error of a network whose step assigns something: it would follow parts of batches, in any order."""
    layers = [each for each in network._flatten_layers() if each.trainable]
    states = [each for each in layers if each._non_trainable_weights and not isinstance(each, _ADAPTED)]
    follows = [*(each for each in layers if isinstance(each, BY_BATCH)), *states]
    which = f"the layer {follows[0].name} ({type(follows[0]).__name__})" if follows else "a layer"
    return UserCodeError(
        f"{AT_ONCE}: {parts}, and {which} of the network follows batches, which would be parts of them",
        expected="a network that computes each example by itself, without batch normalisation",
        todo=f"set {AT_ONCE}: 1; {IN_TURN} computes parts in turn",
    )
