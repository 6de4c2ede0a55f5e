"""Tries pairings of a loss and an optimizer in a separate process; prints each verdict as JSON."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.replica_check import check as replica_check
from tfx_estimator.components.trainer.replica_check import verdict
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.distribution import Distribution

bring_back_estimator()
BATCH = 32
train, layers, losses = tf.compat.v1.train, tf.compat.v1.layers, tf.compat.v1.losses
keras = tf.keras.optimizers.legacy

LOSSES = {
    "mean": lambda each: tf.reduce_mean(each),
    "global": lambda each: tf.reduce_sum(each) / BATCH,
    # After a loss function of TensorFlow 1 that sums, `minimize` does not divide.
    "v1-sum": lambda each: losses.compute_weighted_loss(each, reduction=losses.Reduction.SUM),
}
OPTIMIZERS = {
    "adam": lambda: train.AdamOptimizer(0.01),
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    # Its first step changes nothing.
    "warm-up": lambda: train.GradientDescentOptimizer(0.01 * tf.cast(train.get_global_step(), tf.float32)),
    "keras": lambda: keras.Adam(0.01),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=1e-3),
    "adadelta": lambda: keras.Adadelta(0.1),
}


def minimize(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    return optimizer.minimize(loss, train.get_global_step())


def apply(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    variables = tf.compat.v1.trainable_variables()
    return optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables), train.get_global_step())


def clip(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, _ = tf.clip_by_global_norm(gradients, 1e-3)
    return optimizer.apply_gradients(zip(clipped, variables), train.get_global_step())


def updates(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    optimizer.iterations = train.get_global_step()
    return optimizer.get_updates(loss, tf.compat.v1.trainable_variables())[0]


def by_hand(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    variables = tf.compat.v1.trainable_variables()
    assigned = [each.assign_sub(0.1 * gradient) for each, gradient in zip(variables, tf.gradients(loss, variables))]
    return tf.group(*assigned, train.get_global_step().assign_add(1))


def alone(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise ValueError("this code knows of one device")
    return minimize(optimizer, loss)


class Assigning(train.Optimizer):
    """As BERT's: slots by get_variable, and assignments in its own apply_gradients."""

    def __init__(self, warms_up: bool = False) -> None:
        super().__init__(use_locking=False, name="Assigning")
        self._warms_up = warms_up

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> tf.Operation:
        # The first step of a warm-up changes only the slots.
        rate = 0.01 * tf.cast(global_step, tf.float32) if self._warms_up else 0.1
        assigned = []
        for gradient, variable in grads_and_vars:
            zeros = tf.zeros_initializer()
            moment = tf.compat.v1.get_variable(
                f"{variable.name.partition(':')[0]}/adam_m", variable.shape, initializer=zeros, trainable=False
            )
            after = 0.9 * moment + 0.1 * gradient
            assigned += [variable.assign(variable - rate * after), moment.assign(after)]
        return tf.group(*assigned, global_step.assign_add(1))


class Calling(Assigning):
    """Calls another one's that adds up no gradients."""

    def apply_gradients(self, *args: Any, **kwargs: Any) -> tf.Operation:
        return super().apply_gradients(*args, **kwargs)


class Reducing(Assigning):
    """Adds up the gradients itself."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> tf.Operation:
        pairs = tuple(grads_and_vars)
        reduced = tf.distribute.get_replica_context().merge_call(
            lambda strategy, *pairs: strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs), args=pairs
        )
        return super().apply_gradients(zip(reduced, [variable for _, variable in pairs]), *args, **kwargs)


class Overriding(train.Optimizer):
    """The same update where TensorFlow's own apply_gradients calls it."""

    def __init__(self) -> None:
        super().__init__(use_locking=False, name="Overriding")

    def _create_slots(self, var_list: Any) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "adam_m", "adam_m")

    def _resource_apply_dense(self, grad: tf.Tensor, handle: Any) -> tf.Operation:
        moment = self.get_slot(handle, "adam_m")
        after = 0.9 * moment + 0.1 * grad
        return tf.group(moment.assign(after), handle.assign(handle - 0.1 * after))


OPTIMIZERS |= {
    "assigning": Assigning,
    "assigning-warm-up": lambda: Assigning(warms_up=True),
    "calling": Calling,
    "reducing": Reducing,
    "overriding": Overriding,
}
STEPS = {"minimize": minimize, "apply": apply, "clip": clip, "updates": updates, "hand": by_hand, "alone": alone}


def input_fn() -> tf.data.Dataset:
    return examples(np.random.RandomState(0))


def unseeded_input_fn() -> tf.data.Dataset:
    return examples(np.random)


def reordered_input_fn() -> tf.data.Dataset:
    parts = tf.data.Dataset.range(4).interleave(
        lambda _: examples(np.random.RandomState(0)), num_parallel_calls=2, deterministic=False
    )
    return parts.prefetch(1)


def own_input_fn(input_context: Any = None) -> tf.data.Dataset:
    return examples(
        np.random.RandomState(0), input_context.get_per_replica_batch_size(BATCH) if input_context else BATCH
    )


def fixed_input_fn(input_context: Any = None) -> tf.data.Dataset:
    context = input_context or tf.distribute.InputContext()
    batches = examples(np.random.RandomState(0), BATCH)
    return batches.shard(context.num_input_pipelines, context.input_pipeline_id)


def examples(numbers: Any, batch: Any = BATCH) -> tf.data.Dataset:
    drawn = numbers.rand(512, 8).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((drawn, (drawn.sum(1) > 4).astype(np.int64)))
    return dataset.shuffle(512).repeat().batch(batch)


READERS = {"unseeded": unseeded_input_fn, "reordered": reordered_input_fn, "own": own_input_fn, "fixed": fixed_input_fn}


def eval_input_fn() -> tf.data.Dataset:
    return input_fn().take(3)


def eval_input_fn_of_replica(input_context: Any = None) -> tf.data.Dataset:
    return eval_input_fn()


def metrics(each: tf.Tensor, labels: tf.Tensor) -> dict[str, Any]:
    positives = tf.reduce_sum(tf.cast(labels, tf.float32))
    return {"average": tf.compat.v1.metrics.mean(each), "positives": tf.compat.v1.metrics.mean(positives)}


def make_spec(folder: str, loss: str, optimizer: str, step: str, *specials: str) -> dict[str, Any]:
    # As if a trainer_fn had made it.
    made = OPTIMIZERS[optimizer]() if "outside" in specials else None

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
        if "gpu" in specials:
            # No CPU has this kernel.
            features = tf.raw_ops.NcclAllReduce(input=features, reduction="sum", num_devices=1, shared_name="")
        hidden = layers.dense(features, 64, activation=tf.nn.relu)
        if "norm" in specials:
            hidden = tf.nn.relu(layers.batch_normalization(layers.dense(hidden, 32), training=True))
        if "dropout" in specials:
            hidden = layers.dropout(layers.batch_normalization(hidden, training=True), 0.5, training=True)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=layers.dense(hidden, 2))
        total = LOSSES[loss](each)
        if "l2" in specials:
            total += 1e-3 * tf.add_n([tf.nn.l2_loss(each) for each in tf.compat.v1.trainable_variables()])
        if mode == tf.estimator.ModeKeys.EVAL:
            found = metrics(each, labels) if "positives" in specials else {}
            return tf.estimator.EstimatorSpec(mode, loss=total, eval_metric_ops=found)
        train_op = STEPS[step](made or OPTIMIZERS[optimizer](), total)
        return tf.estimator.EstimatorSpec(mode, loss=total, train_op=train_op)

    estimator = tf.estimator.Estimator(model_fn, tempfile.mkdtemp(dir=folder))
    if "canned" in specials:
        estimator = CANNED[loss](COLUMNS, tempfile.mkdtemp(dir=folder))
    named = [READERS[name] for name in specials if name in READERS]
    reader = named[0] if named else input_fn
    if "canned" in specials:
        reader, evaluated = canned_input_fn, canned_input_fn
    else:
        evaluated = eval_input_fn_of_replica if "fixed" in specials else eval_input_fn
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(reader),
        "eval_spec": tf.estimator.EvalSpec(evaluated),
    }


def canned_input_fn() -> tf.data.Dataset:
    return input_fn().map(lambda numbers, labels: ({"x": numbers}, labels))


COLUMNS = [tf.feature_column.numeric_column("x", [8])]
CANNED = {"v1-sum": tf.compat.v1.estimator.LinearClassifier, "mean": tf.estimator.LinearClassifier}


def main(strategy: str, cases: list[str]) -> None:
    """Tries cases such as `mean adam minimize` under two replicas of a strategy, or `evaluation` alone.

    Args:
        cases: Each may say `per_replica`: `input_batch`.
    """
    devices = {} if strategy == "multi_worker_mirrored" else {"cpu": 2}
    alone = strategy == "evaluation"
    declared = {"strategy": "mirrored" if alone else strategy, "devices": devices}
    distributions = {
        input_batch: Distribution.parse_obj({"eval" if alone else "train": declared, "input_batch": input_batch})
        for input_batch in ("global", "per_replica")
    }
    section = replica_check.section(distributions["global"])
    configure_devices(section)
    made = make_strategy(section)
    for case in cases:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as estimators:
            distribution = distributions["per_replica" if "per_replica" in case else "global"]
            try:
                replica_check.run(functools.partial(make_spec, estimators, *case.split()), distribution, made, folder)
                found = verdict.read(folder)
                result = "; ".join(["right", *found["notes"], *(["chance"] if "chance" in found else [])])
            except UserCodeError as error:
                result = str(error)
            print(json.dumps([case, result, verdict.read(folder).get("batch", "")]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
