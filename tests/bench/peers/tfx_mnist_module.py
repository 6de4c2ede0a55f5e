"""The module file of TFX's official MNIST example, with another network.

Source: `tfx.examples.mnist.mnist_utils_native_keras` of the installed TFX, whose preprocessing_fn, input_fn and serving
function are called here as they are. Changed: the network, its optimizer and the batch size, so that both sides of the
benchmark train the same.
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.examples.mnist import mnist_utils_native_keras as official
from tfx.examples.mnist import mnist_utils_native_keras_base as base

BATCH_SIZE = 128


def preprocessing_fn(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return base.preprocessing_fn(inputs)


def run_fn(fn_args: FnArgs) -> None:
    graph = tft.TFTransformOutput(fn_args.transform_output)
    train = base.input_fn(fn_args.train_files, fn_args.data_accessor, graph, BATCH_SIZE)
    evaluation = base.input_fn(fn_args.eval_files, fn_args.data_accessor, graph, BATCH_SIZE)
    with tf.distribute.MirroredStrategy().scope():
        model = _model()
    model.fit(
        train,
        steps_per_epoch=fn_args.train_steps,
        validation_data=evaluation,
        validation_steps=fn_args.eval_steps,
        callbacks=[tf.keras.callbacks.TensorBoard(log_dir=fn_args.model_run_dir, update_freq="epoch")],
        verbose=2,
    )
    serve = official._get_serve_tf_examples_fn(model, graph).get_concrete_function(
        tf.TensorSpec(shape=[None], dtype=tf.string, name="examples")
    )
    model.save(fn_args.serving_model_dir, save_format="tf", signatures={"serving_default": serve})


def _model() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.InputLayer(input_shape=(784,), name=base.transformed_name(base.IMAGE_KEY)),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=tf.keras.optimizers.legacy.SGD(learning_rate=0.05, momentum=0.9),
        metrics=["sparse_categorical_accuracy"],
    )
    return model
