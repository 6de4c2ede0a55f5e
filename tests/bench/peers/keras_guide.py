"""Training as in Keras's guides: tfds, map(scale), cache, shuffle, batch, `fit`.

Source: https://www.tensorflow.org/datasets/keras_example, the training input and the dense network for MNIST. For
CIFAR-10 the same code with batches of 64 and our side's network, built from the guide's layers.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf
import tensorflow_datasets as tfds


def make_dataset(name: str, data_dir: Optional[str], batch_size: int) -> tf.data.Dataset:
    examples, info = tfds.load(
        name, split="train", data_dir=data_dir, shuffle_files=True, as_supervised=True, with_info=True
    )

    def normalize_img(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(image, tf.float32) / 255.0, label

    examples = examples.map(normalize_img, num_parallel_calls=tf.data.AUTOTUNE)
    examples = examples.cache()
    examples = examples.shuffle(info.splits["train"].num_examples)
    return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def make_dense() -> tf.keras.Model:
    """Builds the guide's network for MNIST."""
    layers = tf.keras.layers
    return tf.keras.models.Sequential(
        [layers.Flatten(input_shape=(28, 28)), layers.Dense(128, activation="relu"), layers.Dense(10)]
    )


def make_convolutions() -> tf.keras.Model:
    """Builds `model_fn.networks.cifar_cnn` from Keras's layers."""
    layers = tf.keras.layers
    return tf.keras.models.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", input_shape=(32, 32, 3)),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def fit(model: tf.keras.Model, examples: tf.data.Dataset, epochs: int, callback: Any) -> None:
    """Compiles and trains like the guide, without the validation."""
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.001),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )
    model.fit(examples, epochs=epochs, callbacks=[callback])
