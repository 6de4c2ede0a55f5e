"""The declared optimizer for Keras: for `model.compile`, or for a loop of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.model_fn.schedules import KerasSchedule, learning_rate
from tfx_estimator.model_fn.update_rules import RULES, Change
from tfx_estimator.pipeline.config.optimizer import Optimizer


def make_keras_optimizer(section: Optimizer, train_steps: int) -> tf.keras.optimizers.legacy.Optimizer:
    """Builds the optimizer, in the scope of the strategy that trains.

    Its `apply_gradients` is to be given each replica's own gradients of `model_fn.update.global_loss`: it sums them
    over the replicas.

    Args:
        section: The declared optimizer.
        train_steps: Step at which the schedule ends.

    Returns:
        The optimizer; its `iterations` counts the steps.
    """
    return DeclaredOptimizer(section, train_steps)


# Not `tf.keras.optimizers.Optimizer`, which updates by many small operations, and has no place for a fused one.
@tf.keras.utils.register_keras_serializable("tfx_estimator")
class DeclaredOptimizer(tf.keras.optimizers.legacy.Optimizer):
    """Any of `update_rules.RULES`.

    Args:
        section: The declared optimizer, or what `get_config` wrote of it.
        train_steps: Step at which the schedule ends.
        name: Of the optimizer.
    """

    _HAS_AGGREGATE_GRAD = True

    def __init__(self, section: Union[Optimizer, dict[str, Any]], train_steps: int, name: Optional[str] = None) -> None:
        self.section = Optimizer.parse_obj(section)
        self.train_steps = train_steps
        self._rule = RULES[self.section.name]
        super().__init__(name or self._rule.name)
        self._set_hyper("learning_rate", KerasSchedule(self.section, train_steps))

    def get_config(self) -> dict[str, Any]:
        """Returns what rebuilds the optimizer."""
        return {"section": self.section.dict(), "train_steps": self.train_steps, "name": self._name}

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            for slot in self._rule.slots:
                self.add_slot(variable, slot)

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, Any]) -> None:
        rate = learning_rate(self.section, self.train_steps, self.iterations)
        apply_state[var_device, var_dtype] = {
            "rate": tf.cast(rate, var_dtype),
            "step": tf.cast(self.iterations + 1, var_dtype),
        }

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Optional[dict[Any, Any]] = None
    ) -> Any:
        where = var.device, var.dtype.base_dtype
        state = (apply_state or {}).get(where) or self._fallback_apply_state(*where)
        slots = {slot: self.get_slot(var, slot) for slot in self._rule.slots}
        return self._rule.apply(Change(self.section, var, grad, slots, **state))

    def _resource_apply_sparse(
        self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor, apply_state: Optional[dict[Any, Any]] = None
    ) -> Any:
        # As Keras's newer optimizers: rows without a gradient have one of 0.
        dense = tf.math.unsorted_segment_sum(grad, indices, tf.shape(var, indices.dtype)[0])
        return self._resource_apply_dense(dense, var, apply_state)
