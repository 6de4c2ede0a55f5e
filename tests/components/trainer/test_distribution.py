"""A trainer_fn unaware of the declared strategy; tests/e2e/others trains such modules under each."""

from __future__ import annotations

import re

import pytest

from tfx_estimator.components.trainer.estimator.distribute import distribute
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import UserCodeError

# Its loss is divided by the batch of one device.
MODULE = """
import tensorflow as tf

v1 = tf.compat.v1


def model_fn(features, labels, mode):
    logits = v1.layers.dense(features["x"], 2)
    if mode == tf.estimator.ModeKeys.PREDICT:
        export = {"serving_default": tf.estimator.export.PredictOutput({"logits": logits})}
        return tf.estimator.EstimatorSpec(mode, {"logits": logits}, export_outputs=export)
    loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)) / 4
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def trainer_fn(fn_args, schema):
    def input_fn():
        data = tf.data.Dataset.from_tensor_slices(({"x": [[1.0], [2.0], [3.0], [4.0]]}, [0, 0, 1, 1]))
        return data.repeat().batch(4)

    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.constant([[0.0]])})
    config = tf.estimator.RunConfig(fn_args.serving_model_dir, save_checkpoints_steps=20)
    exporters = tf.estimator.FinalExporter("own", receiver)
    return {
        "estimator": tf.estimator.Estimator(model_fn, config=config),
        "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(input_fn, steps=1, exporters=exporters),
    }
"""


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_a_loss_that_the_strategy_would_scale_is_refused_before_training(training, tmp_path):
    (tmp_path / "user_module.py").write_text(MODULE)
    settings = Settings(arguments={"distribution": {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}})
    with pytest.raises(UserCodeError, match=re.escape("is 0.50 times that of one device")):
        training.run(settings, steps=40, module_file=str(tmp_path / "user_module.py"))
    assert [path.name for path in training.root.rglob("*.log")] == ["replica_check-0.attempt-1.log"]
    assert not list(training.root.rglob("model.ckpt-*"))


def test_workers_shuffle_alike_without_a_seed_in_the_run_config(tmp_path):
    import tensorflow as tf

    def seed(own: int | None, in_cluster: bool) -> int | None:
        config = tf.estimator.RunConfig(str(tmp_path), tf_random_seed=own)
        estimator = tf.estimator.Estimator(lambda features, labels, mode: None, config=config)
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        return distribute(estimator, strategy, None, in_cluster=in_cluster).config.tf_random_seed

    assert seed(None, in_cluster=True) == 1
    assert seed(7, in_cluster=True) == 7
    assert seed(None, in_cluster=False) is None
