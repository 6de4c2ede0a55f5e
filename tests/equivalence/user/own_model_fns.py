"""Users' model_fns, and a trainer_fn around one, without seeds."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

layers, train = tf.compat.v1.layers, tf.compat.v1.train


def by_keras(features: Any, labels: Any, mode: str, params: Any) -> tf.estimator.EstimatorSpec:
    """Uses Keras layers, dropout included."""
    keras = tf.keras.layers
    hidden = keras.Flatten()(keras.Conv2D(8, 3, strides=2, activation="relu")(features["image"]))
    hidden = keras.Dropout(0.3)(keras.Dense(32)(hidden), training=mode == tf.estimator.ModeKeys.TRAIN)
    return _spec(keras.Dense(10)(hidden), labels, mode)


def by_layers(features: Any, labels: Any, mode: str, params: Any) -> tf.estimator.EstimatorSpec:
    """Uses layers of TensorFlow 1."""
    training = mode == tf.estimator.ModeKeys.TRAIN
    hidden = layers.flatten(layers.conv2d(features["image"], 8, 3, 2, activation=tf.nn.relu))
    hidden = layers.dropout(layers.dense(hidden, 32), 0.3, training=training)
    return _spec(layers.dense(hidden, 10), labels, mode)


def _spec(logits: tf.Tensor, labels: Any, mode: str) -> tf.estimator.EstimatorSpec:
    outputs = {"probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        export = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, outputs, export_outputs=export)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train_op = train.MomentumOptimizer(0.02, 0.9).minimize(loss, train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def trainer_fn(fn_args: Any, schema: Any) -> dict[str, Any]:
    """Returns a TrainSpec whose RunConfig and shuffle have no seed."""
    graph = tft.TFTransformOutput(fn_args.transform_output)
    spec = graph.raw_feature_spec()

    def parse(serialized: tf.Tensor) -> Any:
        features = graph.transform_raw_features(tf.io.parse_example(serialized, spec))
        return features, features.pop("label")

    def read(pattern: Any) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern)))

    def receiver() -> Any:
        examples = tf.compat.v1.placeholder(tf.string, [None])
        raw = tf.io.parse_example(examples, {"image": spec["image"]})
        return tf.estimator.export.ServingInputReceiver(graph.transform_raw_features(raw), {"examples": examples})

    config = tf.estimator.RunConfig(fn_args.serving_model_dir, save_checkpoints_steps=20, save_summary_steps=1)
    return {
        "estimator": tf.estimator.Estimator(by_keras, config=config, params={"any": 1}),
        "train_spec": tf.estimator.TrainSpec(
            lambda: read(fn_args.train_files).shuffle(2000).repeat().batch(48).map(parse), max_steps=fn_args.train_steps
        ),
        "eval_spec": tf.estimator.EvalSpec(
            lambda: read(fn_args.eval_files).batch(72).map(parse),
            steps=None,
            exporters=tf.estimator.FinalExporter("own", receiver),
        ),
    }
