"""The declared optimizer for an Estimator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.clipping import clip, global_scale
from tfx_estimator.model_fn.compression import NONE, compress, restore
from tfx_estimator.model_fn.precision import LossScale, all_finite
from tfx_estimator.model_fn.update_rules import RULES, Change, change_variable
from tfx_estimator.pipeline.config.optimizer import Optimizer

_Pairs = Iterable[tuple[Any, tf.Variable]]


def make_optimizer(
    section: Optimizer,
    rate: tf.Tensor,
    step: tf.Tensor,
    compression: str = NONE,
    loss_scale: Optional[LossScale] = None,
) -> tf.compat.v1.train.Optimizer:
    """Builds the optimizer. The classes of v1 are the ones that work in an Estimator under every strategy.

    Args:
        rate: Learning rate, float32 scalar.
        step: Updates that were done, int64 scalar.
        compression: Of gradients between replicas: see `compression`.
        loss_scale: Where the network computes in float16.

    Returns:
        The optimizer; it sums what it is given over the replicas.
    """
    return DeclaredOptimizer(section, rate, step, compression, loss_scale)


class DeclaredOptimizer(tf.compat.v1.train.Optimizer):
    """Any of `update_rules.RULES`.

    Args:
        rate: Learning rate, float32 scalar.
        step: Updates that were done, int64 scalar.
        compression: Of gradients between replicas: see `compression`.
        loss_scale: As of `make_optimizer`.
    """

    def __init__(
        self,
        section: Optimizer,
        rate: tf.Tensor,
        step: tf.Tensor,
        compression: str = NONE,
        loss_scale: Optional[LossScale] = None,
    ) -> None:
        self._rule = RULES[section.name]
        super().__init__(use_locking=False, name=self._rule.name)
        self._options = section.resolved()
        self._rate = rate
        self._done = step
        self._compression = compression
        self._scale: Optional[tf.Tensor] = None
        self._loss_scale = loss_scale
        self._finite: Optional[tf.Tensor] = None

    def apply_gradients(
        self, grads_and_vars: _Pairs, global_step: Optional[tf.Variable] = None, name: Optional[str] = None
    ) -> tf.Operation:
        """See `tf.compat.v1.train.Optimizer`."""
        pairs = [(_dense(*pair), pair[1]) for pair in grads_and_vars if pair[0] is not None]
        if not tf.distribute.has_strategy():
            self._scale = global_scale([gradient for gradient, _ in pairs], self._options)
            # Without a strategy there is nothing to compress.
            if self._loss_scale is not None:
                self._finite = all_finite([gradient for gradient, _ in pairs])
                with tf.control_dependencies([super().apply_gradients(pairs, global_step, name)]):
                    return tf.group(self._loss_scale.follow(self._finite))
        sent = [(compress(gradient, self._compression), variable) for gradient, variable in pairs]
        return super().apply_gradients(sent, global_step, name)

    def _distributed_apply(
        self,
        distribution: tf.distribute.Strategy,
        grads_and_vars: Sequence[tuple[Any, tf.Variable]],
        global_step: Optional[tf.Variable] = None,
        name: Optional[str] = None,
    ) -> tf.Operation:
        if self._options["global_clip_norm"] is None and self._loss_scale is None:
            return super()._distributed_apply(distribution, grads_and_vars, global_step, name)
        # What the norm is of, and whether all are finite, is known between TensorFlow's two steps: all are reduced,
        # and none is applied.
        extended = distribution.extended
        reduced = extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, grads_and_vars)
        variables = [variable for _, variable in grads_and_vars]
        with tf.init_scope():
            self._create_slots(variables)
        with tf.name_scope(name or self._name):
            local = [distribution.experimental_local_results(gradient)[0] for gradient in reduced]
            whole = [self._restore(*pair) for pair in zip(local, variables)]
            self._scale = global_scale(whole, self._options)
            if self._loss_scale is not None:
                self._finite = all_finite(whole)
            updates = [
                operation
                for gradient, variable in zip(reduced, variables)
                for operation in extended.update(variable, self._update, args=(gradient,), group=False)
            ]
            if self._loss_scale is not None and self._finite is not None:
                with tf.control_dependencies(updates):
                    updates = self._loss_scale.follow(self._finite)
            with tf.control_dependencies(updates):
                return extended.update(global_step, lambda counter: counter.assign_add(1, read_value=False))

    def _restore(self, gradient: Any, variable: tf.Variable) -> Any:
        return restore(gradient, self._compression, variable.dtype.base_dtype)

    def _update(self, variable: tf.Variable, gradient: Any) -> tf.Operation:
        updated = self._resource_apply_dense(tf.convert_to_tensor(gradient), variable)
        if variable.constraint is None:
            return updated
        # As TensorFlow 1 itself does, whose way to the variables is not gone here.
        with tf.control_dependencies([updated]):
            return variable.assign(variable.constraint(variable), read_value=False)

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            slots = self._rule.slots(self._options, tuple(variable.shape.as_list()))
            for slot, (shape, value) in slots.items():
                name = self._rule.name + (f"_{slot}" if len(slots) > 1 else "")
                first = tf.compat.v1.constant_initializer(value)
                dtype = variable.dtype.base_dtype
                self._get_or_make_slot_with_initializer(variable, first, tf.TensorShape(shape), dtype, slot, name)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> tf.Operation:
        grad = self._restore(grad, handle)
        dtype = grad.dtype.base_dtype
        names = self._rule.slots(self._options, tuple(handle.shape.as_list()))
        change = Change(
            variable=handle,
            gradient=clip(grad, self._scale, self._options),
            slots={name: self.get_slot(handle, name) for name in names},
            rate=tf.cast(self._rate, dtype),
            step=tf.cast(self._done + 1, dtype),
            options=self._options,
        )
        return change_variable(self._rule, change, self._finite)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        # As Keras's optimizers: rows without a gradient have one of 0.
        dense = tf.convert_to_tensor(tf.IndexedSlices(grad, indices, tf.shape(handle, indices.dtype)))
        return self._resource_apply_dense(dense, handle)


def _dense(gradient: Any, variable: tf.Variable) -> Any:
    """A gradient of some rows as one of all, where TensorFlow 1 would refuse it: of a variable with a constraint."""
    is_refused = isinstance(gradient, tf.IndexedSlices) and variable.constraint is not None
    return tf.convert_to_tensor(gradient) if is_refused else gradient
