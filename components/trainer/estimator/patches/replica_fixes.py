"""What an Estimator needs changed in TensorFlow to train under several replicas, in a task's own process alone."""

from __future__ import annotations

import copy
import functools
import types
from typing import Any, Optional

import tensorflow as tf
from keras.src.utils import metrics_utils
from tensorflow.python.distribute import cross_device_utils
from tensorflow_estimator.python.estimator.canned import optimizers
from tensorflow_estimator.python.estimator.head.binary_class_head import BinaryClassHead


def apply() -> None:
    """Applies all of them; a second call changes nothing."""
    _copy_optimizers()
    _reduce_sparse_gradients_in_one_shape()
    _measure_baseline_of_all_replicas()


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


def _measure_baseline_of_all_replicas() -> None:
    """Has binary canned Estimators report the `accuracy_baseline` of all examples.

    They divide the labels that one replica has counted by the number of examples of all.
    """
    original = BinaryClassHead._update_accuracy_baseline
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def update(self: Any, eval_metrics: dict[str, Any]) -> None:
        original(self, eval_metrics)
        labels, baseline = eval_metrics[self._label_mean_key], eval_metrics[self._accuracy_baseline_key]

        def result() -> tf.Tensor:
            mean = labels.result()
            return tf.maximum(mean, 1 - mean)

        # As Keras does with a metric's own: what all replicas have counted.
        baseline.result = types.MethodType(metrics_utils.result_wrapper(result), baseline)

    BinaryClassHead._update_accuracy_baseline = update
