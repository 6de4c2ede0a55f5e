"""Networks: functions that return a Keras model from standardised images to logits.

A network function takes `num_classes` and returns an unbuilt `tf.keras.Model`: called with images, float32
[batch, height, width, channels], and `training`, it returns logits, float32 [batch, num_classes].
"""

from __future__ import annotations

import tensorflow as tf

from tfx_estimator.model_fn.layers import PooledConv2D, SynchronizedBatchNormalization
from tfx_estimator.model_fn.step.precision import output_dtype

__all__ = ["cifar_cnn", "cifar_resnet", "cifar_resnet9", "mnist_cnn"]


def mnist_cnn(num_classes: int) -> tf.keras.Model:
    """The network of TensorFlow's multi-worker tutorials: Conv32-3, MaxPool, Flatten, Dense64, Dense.

    Source: https://www.tensorflow.org/tutorials/distribute/multi_worker_with_estimator.

    It has 347,146 weights for 28x28x1 images.
    """
    layers = tf.keras.layers
    # No input_shape: in an Estimator a model that is built early refers to a placeholder that is never fed.
    return tf.keras.Sequential(
        [
            PooledConv2D(32, 3, name="conv1"),
            layers.Flatten(name="flatten"),
            layers.Dense(64, activation="relu", name="dense1"),
            layers.Dense(num_classes, dtype=output_dtype(), name="logits"),
        ],
        name="mnist_cnn",
    )


def cifar_cnn(num_classes: int) -> tf.keras.Model:
    """Two convolutions for small colour images: Conv32, MaxPool, Conv64, MaxPool, Flatten, Dense64, Dense.

    It has 167,562 weights for 32x32x3 images.
    """
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            PooledConv2D(32, 3, read_by=[3], name="conv1"),
            PooledConv2D(64, 3, name="conv2"),
            layers.Flatten(name="flatten"),
            layers.Dense(64, activation="relu", name="dense1"),
            layers.Dense(num_classes, dtype=output_dtype(), name="logits"),
        ],
        name="cifar_cnn",
    )


class _Block(tf.keras.layers.Layer):
    """Pre-activation residual block: BN, ReLU, Conv, BN, ReLU, Conv, plus the (projected) input."""

    def __init__(self, filters: int, strides: int, project: bool, synchronized: bool, name: str) -> None:
        super().__init__(name=name)
        self.norm1 = _norm("norm1", synchronized)
        self.conv1 = _conv(filters, 3, strides, "conv1")
        self.norm2 = _norm("norm2", synchronized)
        self.conv2 = _conv(filters, 3, 1, "conv2")
        self.shortcut = _conv(filters, 1, strides, "shortcut") if project else None

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        active = tf.nn.relu(self.norm1(inputs, training=training))
        shortcut = self.shortcut(active) if self.shortcut else inputs
        outputs = self.conv1(active)
        outputs = self.conv2(tf.nn.relu(self.norm2(outputs, training=training)))
        return outputs + shortcut


class _Unit(tf.keras.layers.Layer):
    """Conv, optional 2x2 max-pooling, BN, ReLU; after pooling these two touch a quarter of the pixels."""

    def __init__(self, filters: int, pool: bool, synchronized: bool, name: str) -> None:
        super().__init__(name=name)
        self.pool = pool
        self.conv = _conv(filters, 3, 1, "conv")
        self.norm = _norm("norm", synchronized)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        outputs = self.conv(inputs)
        if self.pool:
            outputs = tf.nn.max_pool2d(outputs, 2, 2, "VALID")
        return tf.nn.relu(self.norm(outputs, training=training))


class _Residual(tf.keras.layers.Layer):
    """Two units, plus the input."""

    def __init__(self, filters: int, synchronized: bool, name: str) -> None:
        super().__init__(name=name)
        self.unit1 = _Unit(filters, False, synchronized, "unit1")
        self.unit2 = _Unit(filters, False, synchronized, "unit2")

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return inputs + self.unit2(self.unit1(inputs, training=training), training=training)


def _conv(filters: int, size: int, strides: int, name: str) -> tf.keras.layers.Conv2D:
    return tf.keras.layers.Conv2D(
        filters, size, strides=strides, padding="same", use_bias=False, kernel_initializer="he_normal", name=name
    )


def _norm(name: str, synchronized: bool) -> tf.keras.layers.Layer:
    kind = SynchronizedBatchNormalization if synchronized else tf.keras.layers.BatchNormalization
    # Keras's default of 0.99 lags behind for hundreds of steps.
    return kind(momentum=0.9, name=name)


def cifar_resnet(num_classes: int, synchronized: bool = False) -> tf.keras.Model:
    """ResNet-20 v2 for 32x32 images: 3 stages of 3 pre-activation blocks, 16, 32 and 64 filters.

    Source: He et al., Identity Mappings in Deep Residual Networks, 2016, https://arxiv.org/abs/1603.05027.

    Args:
        synchronized: Normalise by the global batch, so that training with several replicas equals training on one
            device; else each replica normalises its own batch, which costs less and trains differently.
    """
    layers = tf.keras.layers
    stack: list[tf.keras.layers.Layer] = [_conv(16, 3, 1, "stem")]
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            first = block == 0
            strides = 2 if first and stage else 1
            name = f"stage{stage + 1}_block{block + 1}"
            stack.append(_Block(filters, strides, project=first, synchronized=synchronized, name=name))
    stack += [
        _norm("norm", synchronized),
        layers.ReLU(name="relu"),
        layers.GlobalAveragePooling2D(name="pool"),
        layers.Dense(num_classes, dtype=output_dtype(), name="logits"),
    ]
    return tf.keras.Sequential(stack, name="cifar_resnet")


def cifar_resnet9(num_classes: int, width: int = 16, synchronized: bool = False) -> tf.keras.Model:
    """Page's ResNet-9 for fast training on CIFAR-10, with a quarter of its channels.

    A training step costs less than half of the CPU of one of `cifar_resnet`; four fifths of that are convolutions.

    Source: Page, How to Train Your ResNet, 2018, https://github.com/davidcpage/cifar10-fast; max-pooling before the
    normalisation as in its part 8.

    Args:
        width: Channels of the first convolution; the last ones have 8 times as many. The source has 64.
            With 32x32x3 images and a width of 16 there are 414,064 weights, 1,120 of them moving averages.
        synchronized: See `cifar_resnet`.
    """
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            _Unit(width, False, synchronized, "stem"),
            _Unit(2 * width, True, synchronized, "stage1"),
            _Residual(2 * width, synchronized, "residual1"),
            _Unit(4 * width, True, synchronized, "stage2"),
            _Unit(8 * width, True, synchronized, "stage3"),
            _Residual(8 * width, synchronized, "residual3"),
            layers.GlobalMaxPooling2D(name="pool"),
            layers.Dense(num_classes, use_bias=False, dtype=output_dtype(), name="logits"),
            # Logits of normalised features are large; this scale fits the initial loss and the learning rates.
            layers.Rescaling(1 / 8, dtype=output_dtype(), name="scale"),
        ],
        name="cifar_resnet9",
    )
