"""A run_fn with Keras, like in TFX's penguin and MNIST examples; it creates its own strategy."""

from __future__ import annotations

import json
import os

import cancer_features as features
import tensorflow as tf
import tensorflow_transform as tft

BATCHES_AN_EPOCH = 20


def build_model():
    inputs = {name: tf.keras.Input([1], name=name) for name in (*features.SCALED, *features.BUCKETS)}
    hidden = tf.keras.layers.concatenate([tf.cast(each, tf.float32) for each in inputs.values()])
    hidden = tf.keras.layers.Dense(16, activation="relu", kernel_initializer=_initializer(1))(hidden)
    outputs = tf.keras.layers.Dense(1, activation="sigmoid", kernel_initializer=_initializer(2))(hidden)
    model = tf.keras.Model(inputs, outputs)
    model.compile(tf.keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    return model


def _initializer(seed):
    return tf.keras.initializers.GlorotUniform(seed)


def read(fn_args):
    """Returns a function that reads global batches of files, for `fit`, which divides them among replicas."""
    transform_output = tft.TFTransformOutput(fn_args.transform_output)

    def data(files):
        batches = features.batches(files, fn_args.data_accessor, transform_output)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        return batches.map(inputs_of).with_options(options)

    return data


def train_and_save(fn_args, strategy, data):
    """Trains under a strategy and saves, like every run_fn with Keras."""
    with strategy.scope():
        model = build_model()
    model.fit(
        data(fn_args.train_files),
        epochs=fn_args.train_steps // BATCHES_AN_EPOCH,
        steps_per_epoch=BATCHES_AN_EPOCH,
        callbacks=[
            tf.keras.callbacks.BackupAndRestore(os.path.join(fn_args.model_run_dir, "backup")),
            *callbacks(fn_args),
        ],
        verbose=2,
    )
    loss, accuracy = model.evaluate(data(fn_args.eval_files), steps=4, verbose=2)
    tf.print("evaluation:", {"loss": loss, "accuracy": accuracy})
    transform_output = tft.TFTransformOutput(fn_args.transform_output)
    model.transform = transform_output.transform_features_layer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def serve(examples):
        spec = transform_output.raw_feature_spec()
        spec.pop(features.LABEL)
        inputs, _ = inputs_of(model.transform(tf.io.parse_example(examples, spec)))
        return {"probability": model(inputs)}

    model.save(fn_args.serving_model_dir, save_format="tf", signatures={"serving_default": serve})


def inputs_of(transformed, label=None):
    return {name: tf.reshape(transformed[name], [-1, 1]) for name in (*features.SCALED, *features.BUCKETS)}, label


def callbacks(fn_args):
    """Returns the callbacks that a test sets in custom_config."""
    if "mark_epochs" not in (fn_args.custom_config or {}):
        return []
    folder = fn_args.custom_config["mark_epochs"]
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "alone", "index": 0})
    name = f"{task['type']}-{task['index']}"

    def mark(epoch, logs):
        with open(os.path.join(folder, name), "a") as file:
            file.write(f"{os.getpid()} {epoch}\n")

    return [tf.keras.callbacks.LambdaCallback(on_epoch_begin=mark)]


def run_fn(fn_args):
    train_and_save(fn_args, tf.distribute.MirroredStrategy(), read(fn_args))
