"""Patches of TensorFlow that a training task applies for its Estimator, in its own process only."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils, ps_values

from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.pipeline.base.stack import keras2

_POLL_SECONDS = 1
# Of an embedding, so many rows a worker are gathered in a step; a collective op of a graph keeps its shape.
_PLACES = (1024, 16384)
# What an optimizer's apply_gradients calls if gradients are added up in it.
_REDUCES = {"merge_call", "all_reduce", "reduce_to", "batch_reduce_to", "_distributed_apply"}


def apply(patches: Iterable[Patch]) -> None:
    """Applies patches, idempotently."""
    for patch in patches:
        patch.apply()


def _save_without_reading_every_step(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    # Only a private method sets it, which Estimator calls only for a TPU.
    self._set_steps_per_run(1)


def _poll_the_chief_often(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    self._recovery_wait_secs = min(self._recovery_wait_secs, _POLL_SECONDS)


# For every task.
PATCHES = (
    Patch(
        "tensorflow.python.training.basic_session_run_hooks:CheckpointSaverHook.__init__",
        _save_without_reading_every_step,
        reason="checkpoint hooks assume up to a million steps per run, as on a TPU: they read the global step in a "
        "session.run of their own after each step, which costs a small network 7 % of its examples per second",
        until="tf.estimator passes its checkpoint hooks the steps of a run on other devices too",
    ),
    Patch(
        "tensorflow.python.training.session_manager:SessionManager.__init__",
        _poll_the_chief_often,
        reason="a worker of parameter_server checks only every 30 s whether the chief has initialised the variables, "
        "and misses a short training altogether",
        until="tf.estimator passes recovery_wait_secs on",
    ),
)


def _count_from_step_0(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    timer, update = self._timer, self._timer.update_last_triggered_step
    if every := timer._every_steps:
        # The step that was due: a model_fn that accumulates gradients has not come to it, and would repeat its point.
        timer.update_last_triggered_step = lambda step: update((due := max(step, self._next_step or 0)) - due % every)


# For a declared network or model_fn.
DECLARED_PATCHES = (
    Patch(
        "tensorflow.python.training.basic_session_run_hooks:SummarySaverHook.__init__",
        _count_from_step_0,
        reason="the summaries of steps 1, 101, 201 cannot be compared with the points of the Keras paths: 1, 100, 200",
        until="there is no tf.estimator",
    ),
)


def _copy_optimizer(original: Any, opt: Any, *args: Any, **kwargs: Any) -> Any:
    given = copy.deepcopy(opt) if isinstance(opt, tf.keras.optimizers.legacy.Optimizer) else opt
    return original(given, *args, **kwargs)


def _reduce_rows(
    original: Any, self: Any, input_slices: tf.IndexedSlices, options: Optional[Any] = None
) -> tf.IndexedSlices:
    """Gathers the rows of each worker in a fixed number of places; those of a step with more are whole tables.

    The optimizer sees only the rows that some worker has a gradient for, as on one device.
    """
    if tf.compat.v1.executing_eagerly_outside_functions() or input_slices.dense_shape is None:
        return original(self, input_slices, options)
    options = self._options.merge(options)
    shape = tf.get_static_value(input_slices.dense_shape)
    fitting = [] if shape is None else [each for each in _PLACES if each * self._group_size < shape[0]]
    with tf.device(self._device):
        rows, values = _add_up(input_slices.indices, input_slices.values)
        reduce: Callable[[], Any] = functools.partial(_reduce_table, self, rows, values, input_slices, options)
        if fitting:
            # The same on all workers, so that all take one branch.
            most = tf.reduce_max(self._all_gather(tf.shape(rows), options))
        for places in reversed(fitting):
            gather = functools.partial(_gather_rows, self, rows, values, places, options)
            reduce = functools.partial(tf.cond, most <= places, gather, reduce)
        rows, values = reduce()
        return tf.IndexedSlices(values, rows, input_slices.dense_shape)


def _add_up(rows: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each row once."""
    found, places = tf.unique(rows)
    return found, tf.math.unsorted_segment_sum(values, places, tf.size(found))


def _gather_rows(
    launcher: Any, rows: tf.Tensor, values: tf.Tensor, places: int, options: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    free = places - tf.size(rows)
    padded = tf.pad(values, [[0, free], *[[0, 0]] * (values.shape.rank - 1)])
    gathered = launcher._all_gather(tf.ensure_shape(padded, [places, *values.shape[1:]]), options)
    # NCCL needs an order.
    with tf.control_dependencies([gathered]):
        padded = tf.pad(rows, [[0, free]], constant_values=-1)
        numbers = launcher._all_gather(tf.ensure_shape(padded, [places]), options)
    taken = tf.reshape(tf.where(numbers >= 0), [-1])
    return _add_up(tf.gather(numbers, taken), tf.gather(gathered, taken))


def _reduce_table(
    launcher: Any, rows: tf.Tensor, values: tf.Tensor, whole: tf.IndexedSlices, options: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    count = whole.dense_shape[0]
    table = tf.math.unsorted_segment_sum(values, rows, count)
    seen = tf.math.unsorted_segment_sum(tf.ones_like(rows, values.dtype), rows, count)
    total, seen = launcher.all_reduce(table, None, options), launcher.all_reduce(seen, None, options)
    found = tf.cast(tf.reshape(tf.where(seen > 0), [-1]), rows.dtype)
    return found, tf.gather(total, found)


def _measure_baseline_of_all(original: Any, self: Any, eval_metrics: dict[str, Any]) -> None:
    original(self, eval_metrics)
    labels, baseline = eval_metrics[self._label_mean_key], eval_metrics[self._accuracy_baseline_key]

    def result() -> tf.Tensor:
        mean = labels.result()
        return tf.maximum(mean, 1 - mean)

    # As Keras wraps a metric's own result: over the counts of all replicas.
    baseline.result = types.MethodType(keras2.internal("utils.metrics_utils").result_wrapper(result), baseline)


def _list_wrapped_alone(original: Any, *args: Any, **kwargs: Any) -> Any:
    create = original(*args, **kwargs)

    def create_and_list(**given: Any) -> Any:
        variable = create(**given)
        if isinstance(variable, ps_values.AggregatingVariable) and not tf.executing_eagerly():
            listed = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
            listed[:] = [each for each in listed if each is not variable.get()]
        return variable

    return create_and_list


def _reduce_first(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    if _adds_up(*type(self).__mro__):
        return
    own = type(self).apply_gradients

    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            # TensorFlow's own adds up what `compute_gradients` has scaled.
            scaled = tf.compat.v1.get_default_graph()._is_loss_scaled_by_optimizer
            kind = tf.distribute.ReduceOp.SUM if scaled else distribute_utils.get_loss_reduction()
            pairs = [(tf.convert_to_tensor(each), variable) for each, variable in grads_and_vars if each is not None]
            reduced = context.merge_call(
                lambda strategy, *pairs: strategy.extended.batch_reduce_to(kind, pairs), args=tuple(pairs)
            )
            grads_and_vars = [(gradient, variable) for gradient, (_, variable) in zip(reduced, pairs)]
        return own(self, grads_and_vars, *args, **kwargs)

    self.apply_gradients = apply_gradients


def _adds_up(owner: Any, *bases: Any) -> bool:
    """Returns True if the apply_gradients of a class adds up the gradients of all replicas, or calls one that may."""
    own = vars(owner).get("apply_gradients")
    if own is None:
        return _adds_up(*bases)
    names = _names(own.__code__) if isinstance(own, types.FunctionType) else _REDUCES
    if names & _REDUCES or own.__module__.startswith("tensorflow."):
        return True
    return "apply_gradients" in names and ("super" not in names or _adds_up(*bases))


def _names(code: types.CodeType) -> set[str]:
    """Returns the names that a function uses, and those within it."""
    return {*code.co_names}.union(*(_names(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def _update_after_reads(original: Any, self: Any, var: Any, *args: Any, **kwargs: Any) -> Any:
    if tf.executing_eagerly() or var is not tf.compat.v1.train.get_global_step():
        return original(self, var, *args, **kwargs)
    readers = [each for copy in getattr(var, "values", ()) for each in copy.handle.consumers()]
    # What is within a tf.cond may not run.
    reads = [each for each in readers if each.type == "ReadVariableOp" and not each._get_control_flow_context()]
    with tf.control_dependencies(reads):
        return original(self, var, *args, **kwargs)


# For tasks that train or evaluate under several replicas.
REPLICA_PATCHES = (
    Patch(
        "tensorflow.python.training.optimizer:Optimizer.__init__",
        _reduce_first,
        reason="an optimizer with an apply_gradients of its own, such as BERT's AdamWeightDecayOptimizer, adds up no "
        "gradients: each replica trains a model of its own",
        until="there is no tf.estimator",
    ),
    Patch(
        "tensorflow.python.distribute.distribute_lib:StrategyExtendedV2.update",
        _update_after_reads,
        reason="where a model_fn itself adds to the global step, a replica may read it after that, and train with "
        "another learning rate than the others",
        until="there is no tf.estimator",
    ),
    Patch(
        "tensorflow_estimator.python.estimator.canned.optimizers:get_optimizer_instance_v2",
        _copy_optimizer,
        reason="canned Estimators call their model_fn once for each replica, and a Keras optimizer that was passed to "
        "them as an object can be used in one call only: the second one fails",
        until="there is no tf.estimator",
    ),
    Patch(
        "tensorflow_estimator.python.estimator.head.binary_class_head:BinaryClassHead._update_accuracy_baseline",
        _measure_baseline_of_all,
        reason="binary canned Estimators divide the labels that one replica has counted by the number of examples of "
        "all: `accuracy_baseline` is divided by the number of replicas",
        until="there is no tf.estimator",
    ),
    Patch(
        "tensorflow.python.distribute.parameter_server_strategy:ParameterServerStrategyExtended._create_var_creator",
        _list_wrapped_alone,
        reason="under central_storage a graph lists the slots of a Keras optimizer twice, wrapped and unwrapped, and "
        "cannot be saved: `At least two variables have the same name`",
        until="there is no tf.estimator",
    ),
    Patch(
        "tensorflow.python.distribute.cross_device_utils:CollectiveReplicaLauncher.all_reduce_indexed_slices",
        _reduce_rows,
        reason="a collective op of a graph keeps the shape of its first step, and the number of an embedding's rows "
        "with a gradient differs in each step: `Shape mismatch in the collective instance`",
        until="nothing trains in graphs of TensorFlow 1 under multi_worker_mirrored",
    ),
)
