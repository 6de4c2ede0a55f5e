"""How several input pipelines share the examples of a data set: disjoint, and complete.

A context says which of how many input pipelines one is; None is that of the only one, which feeds one replica.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional, Union

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import DataError, DeclarationError
from tfx_estimator.pipeline.config.problems import nearest_multiples

# The kinds of sharding.
ELEMENT = "element"
FILE = "file"


def pipeline_count(context: Optional[tf.distribute.InputContext]) -> int:
    """Counts the input pipelines."""
    return context.num_input_pipelines if context else 1


def per_replica_batch_size(global_batch_size: int, key: str, context: Optional[tf.distribute.InputContext]) -> int:
    """Splits a global batch evenly among the replicas."""
    if context is None:
        return global_batch_size
    replicas = context.num_replicas_in_sync
    if global_batch_size % replicas:
        raise DeclarationError(
            f"{key}: {global_batch_size} examples do not divide evenly among {replicas} replicas",
            expected=f"a multiple of {replicas}",
            todo=f"for example {nearest_multiples(global_batch_size, replicas)}",
        )
    return context.get_per_replica_batch_size(global_batch_size)


def replicas_of_pipeline(context: Optional[tf.distribute.InputContext]) -> int:
    """Counts the replicas that one input pipeline feeds."""
    return context.num_replicas_in_sync // context.num_input_pipelines if context else 1


def batch_sizes(dataset: tf.data.Dataset, batch_size: int, replicas: int) -> Union[int, tf.Tensor]:
    """Sizes of batches such that the data end with a batch for every replica.

    Where they end in the middle of a step, the replicas without a batch end the step, and whether the others have
    counted theirs by then is a race in TensorFlow: an evaluation loses examples. So the last step's examples are shared
    out evenly, and the last two steps' where there would be fewer of them than replicas.

    Args:
        dataset: What is batched; it is read once more, to count it, where there are several replicas.

    Returns:
        The size of all batches; or int64 [batches], the size of each.
    """
    if replicas == 1:
        return batch_size
    count = dataset.reduce(tf.constant(0, tf.int64), lambda total, _: total + 1)
    step = batch_size * replicas
    whole_steps = tf.maximum(count - replicas, 0) // step
    rest = count - whole_steps * step
    rest_batches = -(-rest // step) * replicas
    edges = tf.range(rest_batches + 1) * rest // tf.maximum(rest_batches, 1)
    # Not 0: fewer elements than replicas cannot be shared out.
    rest_sizes = tf.maximum(edges[1:] - edges[:-1], 1)
    whole = tf.fill([whole_steps * replicas], tf.constant(batch_size, tf.int64))
    return tf.concat([whole, rest_sizes], axis=0)


def own_elements(dataset: tf.data.Dataset, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
    """Takes every n-th element of an order that all n input pipelines have in common.

    Before batching, so that the pipelines' next elements are together those that a single pipeline would take next.
    """
    # A shard of 1 would take all elements too, but not for nothing.
    if context is None or context.num_input_pipelines == 1:
        return dataset
    return dataset.shard(context.num_input_pipelines, context.input_pipeline_id)


def own_files(files: Sequence[str], context: Optional[tf.distribute.InputContext]) -> list[str]:
    """Gives each input pipeline files of its own."""
    if context is None:
        return sorted(files)
    pipelines = context.num_input_pipelines
    if len(files) < pipelines:
        raise DataError(
            f"{len(files)} training {'file' if len(files) == 1 else 'files'} cannot be shared among {pipelines} input "
            "pipelines by file",
            expected=f"at least {pipelines} files, one for each input pipeline",
            todo=f"raise data.shards to {pipelines} or more, or set trainer.distribution.sharding: {ELEMENT}",
        )
    # Each pipeline finds out of all, so that none waits for another.
    shares = [sorted(files)[index::pipelines] for index in range(pipelines)]
    for index, share in enumerate(shares):
        if not any(tf.io.gfile.stat(path).length for path in share):
            names = ", ".join(os.path.basename(path) for path in share)
            raise DataError(
                f"input pipeline {index} of {pipelines} would have no example to read: {names} "
                f"{'is' if len(share) == 1 else 'are'} empty",
                expected="examples in the files of each input pipeline",
                todo=f"lower data.shards, or set trainer.distribution.sharding: {ELEMENT}",
            )
    return shares[context.input_pipeline_id]
