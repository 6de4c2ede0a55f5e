"""Trains a TPUEstimator as it is, and under two replicas; prints what each reached as JSON."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.estimator.distribute import distribute
from tfx_estimator.components.trainer.user_input.shared_batches import share
from tfx_estimator.model_fn.bridge.tpu import params_in, without_tpu
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.config.distribution import TrainStrategy

v1 = tf.compat.v1
tpu = v1.estimator.tpu
TRAIN, EVAL = tf.estimator.ModeKeys.TRAIN, tf.estimator.ModeKeys.EVAL
sizes: list[list[Any]] = []


class WeightDecay(v1.train.Optimizer):
    """As BERT's: it assigns in an apply_gradients of its own, which adds up no gradients."""

    def __init__(self) -> None:
        super().__init__(use_locking=False, name="WeightDecay")

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> tf.Operation:
        assigned = []
        for gradient, variable in grads_and_vars:
            name, zeros = f"{variable.name.partition(':')[0]}/m", v1.zeros_initializer()
            moment = v1.get_variable(name, variable.shape, initializer=zeros, trainable=False)
            after = 0.9 * moment + tf.multiply(0.1, gradient)
            assigned += [variable.assign(variable - 0.1 * (after + 0.01 * variable)), moment.assign(after)]
        return tf.group(*assigned)


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    sizes.append([mode, params.get("batch_size"), params["use_tpu"], params["own"]])
    start = v1.glorot_uniform_initializer(1)
    table = v1.get_variable("table", [8, 4], initializer=start)
    rows = v1.layers.dense(v1.nn.embedding_lookup(table, features["id"]), 1, kernel_initializer=start)[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tpu.TPUEstimatorSpec(mode, predictions={"rows": rows})
    loss = tf.reduce_mean((rows - labels) ** 2)
    if mode == EVAL:
        metrics = (lambda rows, labels: {"mae": v1.metrics.mean_absolute_error(labels, rows)}), [rows, labels]
        return tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    variables = v1.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 100.0)
    step = v1.train.get_global_step()
    train_op = tf.group(WeightDecay().apply_gradients(zip(gradients, variables), step), step.assign(step + 1))
    return tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params: Any) -> Any:
    ids = np.random.RandomState(0).randint(0, 8, 64)
    dataset = tf.data.Dataset.from_tensor_slices((np.float32(ids % 3), ids)).repeat(5)
    labels, found = v1.data.make_one_shot_iterator(dataset.batch(params["batch_size"], drop_remainder=True)).get_next()
    return {"id": found}, labels


def receive() -> tf.estimator.export.ServingInputReceiver:
    ids = v1.placeholder(tf.int64, [None])
    return tf.estimator.export.ServingInputReceiver({"id": ids}, ids)


class Copies(v1.train.SessionRunHook):
    """Reads each replica's copy of all variables at the end."""

    def begin(self) -> None:
        self.read = [[tf.identity(copy) for copy in getattr(each, "values", [each])] for each in v1.global_variables()]

    def end(self, session: Any) -> None:
        copies = session.run(self.read)
        self.equal = all(np.array_equal(copy, each[0]) for each in copies for copy in each)
        self.most = max(map(len, copies))


def main() -> None:
    """Trains twice from one seed."""
    section = TrainStrategy.parse_obj({"strategy": "mirrored", "devices": {"cpu": 2}})
    configure_devices(section)
    strategy = make_strategy(section)
    for chosen in (None, strategy):
        sizes.clear()
        config = tpu.RunConfig(model_dir=tempfile.mkdtemp(), tf_random_seed=3)
        made = tpu.TPUEstimator(
            model_fn, config=config, params={"own": 1}, use_tpu=False, train_batch_size=16, eval_batch_size=8
        )
        estimator, read, copies = made, input_fn, Copies()
        if chosen:
            estimator = distribute(without_tpu(made), chosen, chosen, in_cluster=False)
            assert [params_in(estimator, mode)["batch_size"] for mode in (TRAIN, EVAL)] == [16, 8]
            read = share(input_fn)
        estimator.train(read, steps=10, hooks=[copies])
        metrics = estimator.evaluate(share(input_fn, training=False) if chosen else input_fn, steps=4)
        if chosen:
            estimator.export_saved_model(tempfile.mkdtemp(), receive)
        values = [estimator.get_variable_value(name).tolist() for name in ("table", "dense/kernel", "table/m")]
        print(json.dumps([sizes, values, metrics["mae"].item(), copies.equal, copies.most]), flush=True)


if __name__ == "__main__":
    main()
