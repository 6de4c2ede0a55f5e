"""A Trainer for anybody's pipeline: its parameter `distribution`, and a trainer_fn that knows nothing of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfx_estimator.components.trainer.estimator.distribute import distribute
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import UserCodeError

# Its own RunConfig, input_fn, minimize, and a table whose gradients are sparse: another number of rows in each step.
MODULE = """
import tensorflow as tf
import tensorflow_transform as tft

train, initializer = tf.compat.v1.train, tf.compat.v1.initializers.glorot_uniform


def model_fn(features, labels, mode):
    pixels = tf.reshape(features["image"], [-1, 784])
    ink = tf.cast(200 * tf.reduce_mean(pixels, 1), tf.int64) % 100
    table = tf.compat.v1.get_variable("table", [100, 10], initializer=initializer(3))
    dense = tf.compat.v1.layers.dense(pixels, 10, kernel_initializer=initializer(4))
    outputs = {"logits": dense + tf.nn.embedding_lookup(table, ink)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        export = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, outputs, export_outputs=export)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs["logits"])
    loss = LOSS
    optimizer = train.MomentumOptimizer(0.02, 0.9)
    metrics = {
        "accuracy": tf.compat.v1.metrics.accuracy(labels, tf.argmax(outputs["logits"], 1)),
        "examples": tf.compat.v1.metrics.true_positives(labels > -1, labels > -1),
    }
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, train.get_global_step()), eval_metric_ops=metrics)


def trainer_fn(fn_args, schema):
    graph = tft.TFTransformOutput(fn_args.transform_output)
    spec = graph.raw_feature_spec()

    def parse(serialized):
        features = graph.transform_raw_features(tf.io.parse_example(serialized, spec))
        return features, features.pop("label")

    def train_input():
        files = sorted(tf.io.gfile.glob(fn_args.train_files))
        return tf.data.TFRecordDataset(files).shuffle(2000, seed=5).repeat().batch(48).map(parse)

    def eval_input():
        return tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(fn_args.eval_files))).batch(72).map(parse)

    def receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None])
        raw = tf.io.parse_example(examples, {"image": spec["image"]})
        return tf.estimator.export.ServingInputReceiver(graph.transform_raw_features(raw), {"examples": examples})

    config = tf.estimator.RunConfig(fn_args.serving_model_dir, save_checkpoints_steps=20, tf_random_seed=3)
    return {
        "estimator": tf.estimator.Estimator(model_fn, config=config),
        "train_spec": tf.estimator.TrainSpec(train_input, max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            eval_input, steps=None, exporters=tf.estimator.FinalExporter("own", receiver)),
    }
"""
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}


@pytest.fixture
def module_file(tmp_path: Path):
    def write(loss: str) -> str:
        path = tmp_path / "user_module.py"
        path.write_text(MODULE.replace("LOSS", loss))
        return str(path)

    return write


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_a_trainer_fn_trains_to_the_same_weights_on_one_device_two_replicas_and_two_workers(training, module_file):
    import numpy as np
    import tensorflow as tf

    module = module_file("tf.reduce_mean(each)")
    # Five batches of evaluation: two replicas do not get as many each.
    declared = ({}, {"train": MIRRORED, "eval": MIRRORED}, {"train": WORKERS})
    weights, logs = [], []
    for section in declared:
        model, model_run = training.run(Settings(arguments={"distribution": section}), steps=40, module_file=module)
        checkpoint = tf.train.load_checkpoint(f"{model_run.uri}/Format-Serving")
        weights.append({name: checkpoint.get_tensor(name) for name in checkpoint.get_variable_to_shape_map()})
        logs.append(sorted({path.name.split(".")[0] for path in (Path(model_run.uri) / "logs").glob("*.log")}))
        assert model_run.get_float_custom_property("eval_examples") == 360
        assert model_run.get_float_custom_property("eval_accuracy") > 0.7
        assert model_run.get_float_custom_property("restarts") == 0
        assert (model / "Format-Serving" / "saved_model.pb").exists()
    assert logs == [
        ["chief-0"],
        ["chief-0", "replica_check-0"],
        ["chief-0", "exporter-0", "replica_check-0", "worker-0"],
    ]
    # Momentum moves only the rows of the table that a step has gradients of, in all three.
    assert sorted(weights[0]) == [
        "dense/bias",
        "dense/bias/Momentum",
        "dense/kernel",
        "dense/kernel/Momentum",
        "global_step",
        "table",
        "table/Momentum",
    ]
    for others in weights[1:]:
        for name, value in weights[0].items():
            np.testing.assert_allclose(others[name], value, atol=1e-5, err_msg=name)


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_a_loss_that_the_strategy_would_scale_is_refused_before_training(training, module_file):
    settings = Settings(arguments={"distribution": {"train": MIRRORED}})
    with pytest.raises(UserCodeError, match=re.escape("is 0.50 times that of one device")):
        training.run(settings, steps=40, module_file=module_file("tf.reduce_sum(each) / 48"))
    assert [path.name for path in training.root.rglob("*.log")] == ["replica_check-0.attempt-1.log"]
    assert not list(training.root.rglob("model.ckpt-*"))


@pytest.mark.unit
def test_workers_shuffle_alike_where_the_run_config_has_no_seed(tmp_path):
    import tensorflow as tf

    def seed(own: int | None, in_cluster: bool) -> int | None:
        config = tf.estimator.RunConfig(str(tmp_path), tf_random_seed=own)
        estimator = tf.estimator.Estimator(lambda features, labels, mode: None, config=config)
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        return distribute(estimator, strategy, None, in_cluster=in_cluster).config.tf_random_seed

    assert seed(None, in_cluster=True) == 1
    assert seed(7, in_cluster=True) == 7
    assert seed(None, in_cluster=False) is None
