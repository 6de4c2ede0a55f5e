"""TFX module files from a declaration, packaged and installed by TFX itself."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

DECLARATION = """
name: modules
data: {dataset: digits, splits: {train: "train[:80%]", eval: "train[80%:]"}, shards: 2}
transform: {module_file: transform/my_transform.py}
trainer: {module_file: my_trainer.py, train_steps: 80}
evaluator: {min_accuracy: 0.7, prediction_key: scores}
"""
TRANSFORM = """
import tensorflow as tf

def preprocessing_fn(inputs):
    pixels = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    return {"pixels": tf.reshape(tf.cast(pixels, tf.float32) / 255.0, [-1, 784]), "label": inputs["label"]}
"""
# An Estimator module file of its own: optimizer.minimize, its own input_fn, its own receivers.
TRAINER = """
import tensorflow as tf
import tensorflow_transform as tft


def model_fn(features, labels, mode):
    logits = tf.compat.v1.layers.dense(features["pixels"], 10)
    outputs = {"scores": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        export = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs=export)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def trainer_fn(fn_args, schema):
    graph = tft.TFTransformOutput(fn_args.transform_output)
    spec = graph.raw_feature_spec()

    def parse(serialized):
        features = graph.transform_raw_features(tf.io.parse_example(serialized, spec))
        return features, tf.reshape(features.pop("label"), [-1])

    def data(patterns, epochs):
        files = tf.io.gfile.glob(patterns)
        return tf.data.TFRecordDataset(files).repeat(epochs).shuffle(2000, seed=1).batch(64).map(parse)

    def receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None])
        raw = tf.io.parse_example(examples, {"image": spec["image"]})
        return tf.estimator.export.ServingInputReceiver(graph.transform_raw_features(raw), {"examples": examples})

    return {
        "estimator": tf.estimator.Estimator(model_fn, fn_args.serving_model_dir),
        "train_spec": tf.estimator.TrainSpec(lambda: data(fn_args.train_files, None), fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            lambda: data(fn_args.eval_files, 1), steps=fn_args.eval_steps,
            exporters=tf.estimator.LatestExporter("latest", receiver)),
    }
"""


def test_existing_module_files_run_unchanged(workdir, tmp_path: Path):
    # In folders of their own: TFX packs, and hashes, all modules beside a module file.
    (tmp_path / "transform").mkdir()
    for name, text in {"m.yaml": DECLARATION, "transform/my_transform.py": TRANSFORM, "my_trainer.py": TRAINER}.items():
        (tmp_path / name).write_text(text)
    workdir.run(str(tmp_path / "m.yaml"))
    results = workdir.summary("modules")
    assert results["accuracy"] >= 0.7
    assert results["blessed"] is True
    assert results["training"]["last_step"] == 80
    assert (Path(results["pushed"]) / "saved_model.pb").exists()

    workdir.run(str(tmp_path / "m.yaml"))
    states = workdir.states("modules")
    assert {state for node, state in states.items() if node != "BaselineResolver"} == {"cached"}

    (tmp_path / "my_trainer.py").write_text(TRAINER.replace("0.01", "0.02"))
    workdir.run(str(tmp_path / "m.yaml"))
    states = workdir.states("modules")
    assert states["Transform"] == "cached"
    assert states["Trainer"] == states["Evaluator"] == states["Pusher"] == "ran"
