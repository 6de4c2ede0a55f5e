"""Shards the examples of a data set among input pipelines, disjointly and completely.

An input context of None is a single input pipeline, which feeds one replica.
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
    """Computes batch sizes such that the data end with a batch for every replica.

    If they end in the middle of a step, the replicas without a batch end the step, and it is a race in TensorFlow
    whether the others have counted theirs by then: an evaluation may lose examples. So the last step's examples are
    divided evenly, and the last two steps' if it has fewer examples than replicas.

    Args:
        dataset: The examples; with several replicas they are read once more, to count them.

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
    # At least 1, also with fewer elements than replicas.
    rest_sizes = tf.maximum(edges[1:] - edges[:-1], 1)
    whole = tf.fill([whole_steps * replicas], tf.constant(batch_size, tf.int64))
    return tf.concat([whole, rest_sizes], axis=0)


def own_elements(dataset: tf.data.Dataset, context: Optional[tf.distribute.InputContext]) -> tf.data.Dataset:
    """Takes every n-th element of the order that all n input pipelines share.

    Before batching, so that the pipelines' next elements together are those that a single pipeline would take next.
    """
    # One shard would take all elements too, but at a cost.
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
    # Each pipeline checks all shares, so that all fail, and none waits for another.
    shares = [sorted(files)[index::pipelines] for index in range(pipelines)]
    for index, share in enumerate(shares):
        if not any(tf.io.gfile.stat(path).length for path in share):
            names = ", ".join(os.path.basename(path) for path in share)
            raise DataError(
                f"input pipeline {index} of {pipelines} would have no examples: {names} "
                f"{'is' if len(share) == 1 else 'are'} empty",
                expected="examples in the files of each input pipeline",
                todo=f"lower data.shards, or set trainer.distribution.sharding: {ELEMENT}",
            )
    return shares[context.input_pipeline_id]
