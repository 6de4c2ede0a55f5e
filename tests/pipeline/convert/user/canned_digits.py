"""A module file with a trainer_fn: a canned Estimator of digits, on the output of Transform."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft


def trainer_fn(fn_args, schema):
    """Reads the output of Transform, and serves tf.Examples."""
    assert [feature.name for feature in schema.feature] == ["image", "label"]
    transform = tft.TFTransformOutput(fn_args.transform_output)
    spec = transform.raw_feature_spec()

    def parse(serialized):
        features = transform.transform_raw_features(tf.io.parse_example(serialized, spec))
        return features, features.pop("label")

    def data(patterns, epochs):
        return tf.data.TFRecordDataset(tf.io.gfile.glob(patterns)).repeat(epochs).batch(64).map(parse)

    def receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None])
        raw = tf.io.parse_example(examples, {"image": spec["image"]})
        features = transform.transform_raw_features(raw)
        return tf.estimator.export.ServingInputReceiver(features, {"examples": examples})

    pixels = tf.feature_column.numeric_column("image", [28, 28, 1])
    return {
        "estimator": tf.estimator.DNNClassifier(
            [16], [pixels], fn_args.serving_model_dir, n_classes=10, optimizer=tf.keras.optimizers.legacy.Adam(0.003)
        ),
        "train_spec": tf.estimator.TrainSpec(lambda: data(fn_args.train_files, None), fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            lambda: data(fn_args.eval_files, 1), steps=None, exporters=tf.estimator.FinalExporter("last", receiver)
        ),
    }
