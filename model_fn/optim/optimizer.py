"""The declared optimizer: one, for an Estimator's graph, `model.compile`, and a loop of one's own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.model_fn.optim.gradients import NONE, clip, compress, global_scale, restore
from tfx_estimator.model_fn.optim.schedules import KerasSchedule
from tfx_estimator.model_fn.optim.update_rules import RULES, Change, Shape, change_variable
from tfx_estimator.model_fn.step.precision import LossScale, all_finite
from tfx_estimator.pipeline.config.optimizer import Optimizer

_Pairs = Sequence[tuple[Any, tf.Variable]]


def given_rate(optimizer: Any) -> Any:
    """Returns what an optimizer was given for a learning rate: a schedule, or what holds a number.

    Returns:
        None of an optimizer that has none.
    """
    # `learning_rate` of Keras's newer ones is the value of now.
    rate = getattr(optimizer, "_learning_rate", None)
    return getattr(optimizer, "learning_rate", None) if rate is None else rate


# Not `tf.keras.optimizers.Optimizer`, which updates by many small operations, and has no place for a fused one.
@tf.keras.utils.register_keras_serializable("tfx_estimator")
class DeclaredOptimizer(tf.keras.optimizers.legacy.Optimizer):
    """Any of `update_rules.RULES`; to be made in the scope of the strategy that trains, or in a replica.

    Its `apply_gradients` is to be given each replica's own gradients of `Objective.loss`, and sums them over the
    replicas. Its `iterations` count the steps: in an Estimator's graph they are to be given the global step.

    Args:
        section: The declared optimizer, or what `get_config` wrote of it.
        train_steps: Step at which the schedule ends.
        compression: Of gradients between replicas: see `compress`.
        loss_scale: Where the network computes in float16; the gradients are then those of the unscaled loss.
        replicas: By which the rate is scaled; None are those of the strategy.
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
            # Into checkpoints.
            self._track_trackable(loss_scale, "loss_scale")
        self._finite: Optional[tf.Tensor] = None
        # Each replica of this process has a thread.
        self._beside = threading.local()
        self._set_hyper("learning_rate", KerasSchedule(self.section, train_steps, self.replicas))

    def get_config(self) -> dict[str, Any]:
        """Returns what rebuilds the optimizer."""
        own = {"section": self.section.dict(), "train_steps": self.train_steps, "replicas": self.replicas}
        return {**own, "compression": self.compression, "name": self._name}

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            for slot, (shape, value) in self.slots_of(variable).items():
                self.add_slot(variable, slot, tf.keras.initializers.Constant(value), shape)

    def add_slot(self, var: tf.Variable, *args: Any, **kwargs: Any) -> tf.Variable:
        """Lists a slot of several replicas once in a graph: each part of it would be saved as well."""
        slot = super().add_slot(var, *args, **kwargs)
        if isinstance(slot, tf.distribute.DistributedValues) and not tf.compat.v1.executing_eagerly_outside_functions():
            listed = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
            listed[:] = [each for each in listed if not any(each is part for part in getattr(slot, "values", ()))]
        return slot

    def slots_of(self, variable: tf.Variable) -> dict[str, tuple[Shape, float]]:
        """Returns the shape and the first value of each slot of a variable."""
        return self._rule.slots(self._options, tuple(variable.shape.as_list()))

    def apply_and_sum(self, grads_and_vars: _Pairs, beside: tf.Tensor) -> tf.Tensor:
        """Applies gradients, and has numbers summed over the replicas by the same message.

        A message of their own costs two processes about as much as one of all gradients of a small network.

        Args:
            beside: Numbers of this replica; in another dtype than the gradients they are sent by themselves.
        """
        if tf.distribute.get_replica_context().num_replicas_in_sync == 1:
            self.apply_gradients(grads_and_vars)
            return beside
        self._beside.numbers = beside
        try:
            self.apply_gradients(grads_and_vars)
            return self._beside.numbers
        finally:
            self._beside.numbers = None

    def _aggregate_gradients(self, grads_and_vars: _Pairs) -> _Pairs:
        sent = [(compress(gradient, self.compression), variable) for gradient, variable in grads_and_vars]
        numbers = getattr(self._beside, "numbers", None)
        # A message is of one dtype.
        together = numbers is not None and {each.dtype for each, _ in sent if each is not None} == {numbers.dtype}
        if together:
            # To where they come from.
            sent.append((numbers, numbers))
        # Of one device's own there is no sum; all of them would go to the first device and back, where layers are on
        # several.
        summed = super()._aggregate_gradients(sent) if tf.distribute.has_strategy() else sent
        if together:
            self._beside.numbers, _ = summed.pop()
        elif numbers is not None:
            add_up = tf.distribute.get_replica_context().all_reduce
            self._beside.numbers = add_up(tf.distribute.ReduceOp.SUM, numbers)
        return [
            (restore(gradient, self.compression, variable.dtype.base_dtype), variable) for gradient, variable in summed
        ]

    def _transform_gradients(self, grads_and_vars: _Pairs) -> _Pairs:
        # Summed over the replicas by now, and not applied yet. Rows without a gradient have one of 0, as in Keras.
        if self.loss_scale is not None:
            self._finite = all_finite([gradient for gradient, _ in grads_and_vars])
        scale = global_scale([gradient for gradient, _ in grads_and_vars], self._options)
        dense = [tf.convert_to_tensor(gradient) for gradient, _ in grads_and_vars]
        variables = [variable for _, variable in grads_and_vars]
        parts = _of_whole_variables(dense, variables)
        return [
            (clip(gradient, scale, self._options, parts.get(_whole(variable), ())), variable)
            for gradient, variable in zip(dense, variables)
        ]

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

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Optional[dict[Any, Any]] = None
    ) -> Any:
        where = var.device, var.dtype.base_dtype
        state = (apply_state or {}).get(where) or self._fallback_apply_state(*where)
        slots = {slot: self.get_slot(var, slot) for slot in self.slots_of(var)}
        change = Change(var, grad, slots, options=self._options, **state)
        return change_variable(self._rule, change, self._finite)


def _whole(variable: tf.Variable) -> Optional[int]:
    """Tells which variable this is a part of, that a partitioner has cut; None of a whole one."""
    container = getattr(variable, "_sharded_container", None)
    # A weak reference: one that nobody has any more tells nothing of its parts.
    whole = None if container is None else container()
    return None if whole is None else id(whole)


def _of_whole_variables(
    gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> dict[Optional[int], list[tf.Tensor]]:
    """Returns the gradients of the parts of each variable that was cut."""
    found: dict[Optional[int], list[tf.Tensor]] = {}
    for gradient, variable in zip(gradients, variables):
        if (whole := _whole(variable)) is not None:
            found.setdefault(whole, []).append(gradient)
    return found
