"""What an Estimator needs changed in TensorFlow to train under several replicas, in a task's own process alone."""

from __future__ import annotations

import copy
import functools
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils
from tensorflow_estimator.python.estimator.canned import optimizers


def apply() -> None:
    """Applies all of them; a second call changes nothing."""
    _copy_optimizers()
    _reduce_sparse_gradients_in_one_shape()


def _copy_optimizers() -> None:
    """Has canned Estimators train with a copy of a Keras optimizer that was handed to them as an object.

    They call their model_fn once for each replica, and a Keras optimizer serves one call: the second one fails.
    """
    original = optimizers.get_optimizer_instance_v2
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def get_copy(opt: Any, *args: Any, **kwargs: Any) -> Any:
        given = copy.deepcopy(opt) if isinstance(opt, tf.keras.optimizers.legacy.Optimizer) else opt
        return original(given, *args, **kwargs)

    optimizers.get_optimizer_instance_v2 = get_copy


def _reduce_sparse_gradients_in_one_shape() -> None:
    """Has the workers add up the gradients of embeddings and categories as whole tables, with a count for each row.

    A collective op of a graph remembers the shape of its first step. TensorFlow gathers the rows that each worker has a
    gradient of, which are another number in each step: `Shape mismatch in the collective instance`. The optimizer still
    sees only the rows that some worker has a gradient of, as on one device.
    """
    launcher = cross_device_utils.CollectiveReplicaLauncher
    original = launcher.all_reduce_indexed_slices
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def reduce(self: Any, input_slices: tf.IndexedSlices, options: Optional[Any] = None) -> tf.IndexedSlices:
        if tf.compat.v1.executing_eagerly_outside_functions() or input_slices.dense_shape is None:
            return original(self, input_slices, options)
        with tf.device(self._device):
            values, indices = input_slices.values, input_slices.indices
            rows = input_slices.dense_shape[0]
            table = tf.math.unsorted_segment_sum(values, indices, rows)
            counts = tf.math.unsorted_segment_sum(tf.ones_like(indices, values.dtype), indices, rows)
            total, seen = self.all_reduce(table, None, options), self.all_reduce(counts, None, options)
            found = tf.cast(tf.reshape(tf.where(seen > 0), [-1]), indices.dtype)
            return tf.IndexedSlices(tf.gather(total, found), found, input_slices.dense_shape)

    launcher.all_reduce_indexed_slices = reduce
