"""Gradient accumulation: the gradients of an update from parts of its batch, one after the other, in less memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import UserCodeError

Features = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Part:
    """A part of a replica's batch.

    Args:
        features: Of its examples, [part, ...].
        labels: int64, [part].
        share: What part of the batch it is, scalar; None is all of it.
        first: Does no other come before it.
    """

    features: Features
    labels: tf.Tensor
    share: Optional[Union[float, tf.Tensor]] = None
    first: bool = True

    def within(self, whole: Part) -> Part:
        """Returns the part as one of the batch of which `whole`, that it was cut out of, is a part itself.

        Args:
            whole: Another part, or all of the batch.
        """
        shares = [each for each in (whole.share, self.share) if each is not None]
        share = shares[0] if len(shares) == 1 else shares[0] * shares[1] if shares else None
        return replace(self, share=share, first=self.first and whole.first)


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


def in_turn(compute: Callable[[Part], Computed], features: Features, labels: tf.Tensor, parts: int) -> Computed:
    """Computes a batch in parts of equal size, to within one example, and adds up what they contribute.

    A part begins when the one before it is done, so that the memory of one part's activations is enough for all. There
    is no variable in which the gradients are gathered: under central_storage it would be silently wrong.

    Args:
        features: Of the replica's batch, each [batch, ...].
        labels: int64, [batch].
        parts: How many; one is the batch itself.

    Raises:
        UserCodeError: A part would have no example: averages of normalisation would be no numbers.
    """
    total: Optional[Computed] = None
    for number in range(parts):
        with tf.control_dependencies(operations(total)):
            part = cut(features, labels, number, parts, "trainer.gradient_accumulation")
            computed = compute(part)
            total = computed if parts == 1 else add(total, computed)
    assert total is not None
    return total


def cut(features: Features, labels: tf.Tensor, number: int, parts: int, option: str) -> Part:
    """Cuts a part out of a batch, all of which are of equal size, to within one example.

    Args:
        features: Of the replica's batch, each [batch, ...].
        labels: int64, [batch].
        number: Of the part, from 0.
        parts: How many; one is the batch itself.
        option: Dotted path in the declaration, which says how many.

    Raises:
        UserCodeError: A part would have no example: averages of normalisation would be no numbers.
    """
    if parts == 1:
        return Part(features, labels)
    size = labels.shape[0] or tf.shape(labels)[0]
    if isinstance(size, int) and size < parts:
        raise UserCodeError(
            f"{option}: each replica has {size} examples of a step, too few for {parts} parts",
            expected=f"at most {size}",
            todo="lower it, or raise trainer.global_batch_size, which is the batch of an update",
        )
    begin, end = size * number // parts, size * (number + 1) // parts
    within = {name: _rows(each, begin, end) for name, each in features.items()}
    return Part(within, labels[begin:end], (end - begin) / size, first=not number)


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


def operations(computed: Optional[Computed]) -> list[Any]:
    """Returns what is done when a part is.

    Args:
        computed: Of the parts so far; None if none was.
    """
    if computed is None:
        return []
    return [computed.loss, computed.hits, *(g for g in computed.gradients if g is not None), *computed.updates]


def part_penalties(
    part: Part, of_the_call: Sequence[tf.Tensor], of_the_weights: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Returns a part's penalties: those of all parts are together those of the whole batch.

    Args:
        of_the_call: What Keras lists after the network was called: of weights, or means over the part's examples.
        of_the_weights: What depends on no example.
    """
    if part.share is None:
        return [*of_the_call, *of_the_weights]
    shares = [each * tf.cast(part.share, each.dtype) for each in of_the_call]
    return [*shares, *of_the_weights] if part.first else shares


def refuse_accumulation(parts: int, target: str, brings: str) -> None:
    """Refuses parts where the step is not ours.

    Args:
        target: `trainer.model`.
        brings: What it is instead of a network.

    Raises:
        UserCodeError: A batch is to have several parts.
    """
    if parts > 1:
        raise UserCodeError(
            f"trainer.gradient_accumulation: {parts}, and {target!r} {brings}: its batches would stay whole",
            expected="a function that returns a network, not compiled: loss and optimizer are then the declaration's",
            todo="remove trainer.gradient_accumulation, or name such a function by trainer.model",
        )


def add(total: Optional[Computed], more: Computed) -> Computed:
    """Adds what a part contributes.

    Args:
        total: Of the parts before it; None if there are none.
    """
    if total is None:
        # Rows that a part does not touch may be of another's.
        return Computed(more.loss, more.hits, [_dense(each) for each in more.gradients], more.updates)
    return Computed(
        total.loss + more.loss,
        total.hits + more.hits,
        [_sum(one, _dense(other)) for one, other in zip(total.gradients, more.gradients)],
        more.updates,
    )


def _dense(gradient: Any) -> Any:
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one + other
