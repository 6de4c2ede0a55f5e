"""The declared optimizer, for an Estimator's graph, `model.compile` and a custom loop alike."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tfx_estimator.model_fn.optim.gradients import NONE, clip, compress, global_scale, restore
from tfx_estimator.model_fn.optim.schedules import KerasSchedule
from tfx_estimator.model_fn.optim.update_rules import RULES, Change, Rule, Shape, change_variable
from tfx_estimator.model_fn.step.precision import LossScale, all_finite
from tfx_estimator.pipeline.config.optimizer import Optimizer

_Pairs = Sequence[tuple[Any, tf.Variable]]


def given_rate(optimizer: Any) -> Any:
    """Returns an optimizer's learning rate as it was passed: a schedule or a variable; None if it has none."""
    # `learning_rate` of Keras's newer optimizers is the current value.
    rate = getattr(optimizer, "_learning_rate", None)
    return getattr(optimizer, "learning_rate", None) if rate is None else rate


# Not `tf.keras.optimizers.Optimizer`, which updates by many small operations and has no hook for a fused one.
@tf.keras.utils.register_keras_serializable("tfx_estimator")
class DeclaredOptimizer(tf.keras.optimizers.legacy.Optimizer):
    """Any of `update_rules.RULES`; constructed in the scope of the training strategy, or in a replica.

    `apply_gradients` takes each replica's own gradients of `Objective.loss` and sums them over the replicas.
    `iterations` counts the steps: in an Estimator's graph, assign the global step to it.

    Args:
        section: The declared optimizer, or its form in `get_config`.
        train_steps: Step at which the schedule ends.
        compression: Kind of gradient compression between replicas: see `compress`.
        loss_scale: For a network that computes in float16; the gradients passed are those of the unscaled loss.
        replicas: Factor of the rate's scaling; None takes the strategy's number of replicas.
    """

    _HAS_AGGREGATE_GRAD = True

    def __init__(
        self,
        section: Union[Optimizer, dict[str, Any]],
        train_steps: int,
        compression: str = NONE,
        loss_scale: Optional[LossScale] = None,
        replicas: Optional[int] = None,
        name: Optional[str] = None,
    ) -> None:
        self.section = Optimizer.parse_obj(section)
        self.train_steps = train_steps
        self.replicas = replicas or tf.distribute.get_strategy().num_replicas_in_sync
        self.compression = compression
        self._rule = RULES[self.section.name]
        self._options = self.section.resolved()
        super().__init__(name or self._rule.name)
        self.loss_scale = loss_scale
        if loss_scale is not None:
            # Saves it in checkpoints.
            self._track_trackable(loss_scale, "loss_scale")
        self._finite: Optional[tf.Tensor] = None
        # Each replica of this process runs in its own thread.
        self._to_sum = threading.local()
        self._set_hyper("learning_rate", KerasSchedule(self.section, train_steps, self.replicas))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {"section": self.section.dict(), "train_steps": self.train_steps, "replicas": self.replicas}
        return {**own, "compression": self.compression, "name": self._name}

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            for slot, (shape, value) in self.slots_of(variable).items():
                self.add_slot(variable, slot, tf.keras.initializers.Constant(value), shape)

    def add_slot(self, var: tf.Variable, *args: Any, **kwargs: Any) -> tf.Variable:
        """Lists a replicated slot once in the graph's variables; else each replica's copy would be saved too."""
        slot = super().add_slot(var, *args, **kwargs)
        if isinstance(slot, tf.distribute.DistributedValues) and not tf.compat.v1.executing_eagerly_outside_functions():
            listed = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
            listed[:] = [each for each in listed if not any(each is part for part in getattr(slot, "values", ()))]
        return slot

    def slots_of(self, variable: tf.Variable) -> dict[str, tuple[Shape, float]]:
        """Returns the shape and the initial value of each slot of a variable."""
        rule, options, _ = self.update_of(variable)
        return rule.slots(options, tuple(variable.shape.as_list()))

    def update_of(self, variable: tf.Variable) -> tuple[Rule, Mapping[str, Any], Optional[float]]:
        """Returns the update of a variable: its rule, the options, and its rate; None for the scheduled one."""
        return self._rule, self._options, None

    def apply_and_sum(self, grads_and_vars: _Pairs, numbers: tf.Tensor) -> tf.Tensor:
        """Applies gradients, and sums `numbers` over the replicas in the same all-reduce.

        Between two processes a separate all-reduce costs about as much as one of all gradients of a small network.

        Args:
            numbers: This replica's; reduced separately if their dtype is not that of the gradients.
        """
        if tf.distribute.get_replica_context().num_replicas_in_sync == 1:
            self.apply_gradients(grads_and_vars)
            return numbers
        self._to_sum.numbers = numbers
        try:
            self.apply_gradients(grads_and_vars)
            return self._to_sum.numbers
        finally:
            self._to_sum.numbers = None

    def _aggregate_gradients(self, grads_and_vars: _Pairs) -> _Pairs:
        sent = [(compress(gradient, self.compression), variable) for gradient, variable in grads_and_vars]
        numbers = getattr(self._to_sum, "numbers", None)
        # An all-reduce has one dtype.
        together = numbers is not None and {each.dtype for each, _ in sent if each is not None} == {numbers.dtype}
        if together:
            # The second entry is the destination: the devices of the numbers themselves.
            sent.append((numbers, numbers))
        # One replica has nothing to sum; with layers on several devices its gradients would only be copied to the
        # first device and back.
        summed = super()._aggregate_gradients(sent) if tf.distribute.has_strategy() else sent
        if together:
            self._to_sum.numbers, _ = summed.pop()
        elif numbers is not None:
            all_reduce = tf.distribute.get_replica_context().all_reduce
            self._to_sum.numbers = all_reduce(tf.distribute.ReduceOp.SUM, numbers)
        return [
            (restore(gradient, self.compression, variable.dtype.base_dtype), variable) for gradient, variable in summed
        ]

    def _transform_gradients(self, grads_and_vars: _Pairs) -> _Pairs:
        # Called after the sum over replicas and before the update.
        if self.loss_scale is not None:
            self._finite = all_finite([gradient for gradient, _ in grads_and_vars])
        # What has an update of its own has its own limits.
        options = [self.update_of(variable)[1] for _, variable in grads_and_vars]
        variables = [variable for _, variable in grads_and_vars]
        gradients = [
            _summed(gradient) if self._is_sparse(gradient, variable) else tf.convert_to_tensor(gradient)
            for gradient, variable in grads_and_vars
        ]
        values = [each.values if isinstance(each, tf.IndexedSlices) else each for each in gradients]
        scale = global_scale([one for one, each in zip(values, options) if each is self._options], self._options)
        parts = _of_whole_variables(values, variables)
        clipped = [
            clip(one, scale if each is self._options else None, each, parts.get(_whole(variable), ()))
            for one, variable, each in zip(values, variables, options)
        ]
        return [
            (tf.IndexedSlices(one, each.indices) if isinstance(each, tf.IndexedSlices) else one, variable)
            for one, each, variable in zip(clipped, gradients, variables)
        ]

    def _is_sparse(self, gradient: Any, variable: tf.Variable) -> bool:
        """Returns whether an update changes the rows of an embedding that have a gradient, and no others."""
        if not isinstance(gradient, tf.IndexedSlices) or variable.constraint is not None:
            return False
        rule, options, _ = self.update_of(variable)
        if options["decoupled_weight_decay"]:
            # It moves all rows.
            return False
        # XLA has neither the operations nor, of a batch's distinct rows, the shape.
        return rule.is_sparse(options) and not control_flow_util.GraphOrParentsInXlaContext(
            tf.compat.v1.get_default_graph()
        )

    def _distributed_apply(
        self, distribution: tf.distribute.Strategy, grads_and_vars: _Pairs, apply_state: Any, name: Optional[str]
    ) -> Any:
        applied = super()._distributed_apply(distribution, grads_and_vars, apply_state, name)
        if self.loss_scale is None or self._finite is None:
            return applied
        return tf.group(applied, self.loss_scale.follow(self._finite))

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, Any]) -> None:
        apply_state[var_device, var_dtype] = {
            "rate": tf.cast(self.learning_rate(self.iterations), var_dtype),
            "step": tf.cast(self.iterations + 1, var_dtype),
        }

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor, **state: Any
    ) -> Any:
        # `_transform_gradients` has summed them, before it clipped.
        return self._resource_apply_sparse(grad, var, indices, **state)

    def _resource_apply_sparse(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        indices: tf.Tensor,
        apply_state: Optional[dict[Any, Any]] = None,
    ) -> Any:
        return self._resource_apply_dense(grad, var, apply_state, indices)

    def _resource_apply_dense(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        apply_state: Optional[dict[Any, Any]] = None,
        rows: Optional[tf.Tensor] = None,
    ) -> Any:
        where = var.device, var.dtype.base_dtype
        state = (apply_state or {}).get(where) or self._fallback_apply_state(*where)
        rule, options, rate = self.update_of(var)
        if rate is not None:
            state = {**state, "rate": tf.constant(rate, where[1])}
        slots = {slot: self.get_slot(var, slot) for slot in self.slots_of(var)}
        return change_variable(rule, Change(var, grad, slots, options=options, rows=rows, **state), self._finite)


def _summed(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns the gradient with each row once."""
    rows, places = tf.unique(gradient.indices)
    return tf.IndexedSlices(tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows)), rows)


def _whole(variable: tf.Variable) -> Optional[int]:
    """Returns the id of the partitioned variable that this is a shard of; None for an unpartitioned one."""
    container = getattr(variable, "_sharded_container", None)
    # A weak reference, which may be dead.
    whole = None if container is None else container()
    return None if whole is None else id(whole)


def _of_whole_variables(
    gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> dict[Optional[int], list[tf.Tensor]]:
    """Returns the gradients of the shards of each partitioned variable."""
    found: dict[Optional[int], list[tf.Tensor]] = {}
    for gradient, variable in zip(gradients, variables):
        if (whole := _whole(variable)) is not None:
            found.setdefault(whole, []).append(gradient)
    return found
