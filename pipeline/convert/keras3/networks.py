"""The built-in networks in Keras 3, of Keras's layers only, so that saved models do not need this project.

Layer names are those of `model_fn.networks`; those of nested layers have `_` for `/`, which Keras 3 refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# `tf.keras` is Keras 3 in the process that imports this.
Tensor = Any
Shape = Sequence[int]
layers = tf.keras.layers


def mnist_cnn(num_classes: int, shape: Shape) -> tf.keras.Model:
    """Conv32-3, MaxPool, Flatten, Dense64, Dense: see `model_fn.networks`."""
    return _plain(num_classes, shape, (32,), "mnist_cnn")


def cifar_cnn(num_classes: int, shape: Shape) -> tf.keras.Model:
    """Conv32, MaxPool, Conv64, MaxPool, Flatten, Dense64, Dense."""
    return _plain(num_classes, shape, (32, 64), "cifar_cnn")


def cifar_resnet(num_classes: int, shape: Shape, synchronized: bool = False) -> tf.keras.Model:
    """ResNet-20 v2; `synchronized` has no effect on one device."""
    inputs = tf.keras.Input(shape)
    outputs = _conv(16, 3, 1, "stem")(inputs)
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            strides = 2 if block == 0 and stage else 1
            outputs = _block(outputs, filters, strides, block == 0, f"stage{stage + 1}_block{block + 1}")
    outputs = layers.ReLU(name="relu")(_norm("norm")(outputs))
    outputs = layers.GlobalAveragePooling2D(name="pool")(outputs)
    return tf.keras.Model(inputs, layers.Dense(num_classes, name="logits")(outputs), name="cifar_resnet")


def cifar_resnet9(num_classes: int, shape: Shape, width: int = 16, synchronized: bool = False) -> tf.keras.Model:
    """The ResNet-9; `synchronized` has no effect on one device."""
    inputs = tf.keras.Input(shape)
    outputs = _unit(inputs, width, False, "stem")
    outputs = _residual(_unit(outputs, 2 * width, True, "stage1"), 2 * width, "residual1")
    outputs = _unit(_unit(outputs, 4 * width, True, "stage2"), 8 * width, True, "stage3")
    outputs = layers.GlobalMaxPooling2D(name="pool")(_residual(outputs, 8 * width, "residual3"))
    outputs = layers.Dense(num_classes, use_bias=False, name="logits")(outputs)
    return tf.keras.Model(inputs, layers.Rescaling(1 / 8, name="scale")(outputs), name="cifar_resnet9")


def _plain(num_classes: int, shape: Shape, filters: Sequence[int], name: str) -> tf.keras.Model:
    stack: list[Any] = [tf.keras.Input(shape)]
    for number, each in enumerate(filters, 1):
        stack.append(layers.Conv2D(each, 3, activation="relu", name=f"conv{number}"))
        stack.append(layers.MaxPooling2D(name=f"pool{number}"))
    stack += [layers.Flatten(name="flatten"), layers.Dense(64, activation="relu", name="dense1")]
    return tf.keras.Sequential([*stack, layers.Dense(num_classes, name="logits")], name=name)


def _block(inputs: Tensor, filters: int, strides: int, project: bool, name: str) -> Tensor:
    """BN, ReLU, Conv, BN, ReLU, Conv, plus the (projected) input."""
    active = layers.ReLU(name=f"{name}_relu1")(_norm(f"{name}_norm1")(inputs))
    outputs = _conv(filters, 3, strides, f"{name}_conv1")(active)
    outputs = layers.ReLU(name=f"{name}_relu2")(_norm(f"{name}_norm2")(outputs))
    outputs = _conv(filters, 3, 1, f"{name}_conv2")(outputs)
    shortcut = _conv(filters, 1, strides, f"{name}_shortcut")(active) if project else inputs
    return layers.Add(name=f"{name}_add")([outputs, shortcut])


def _unit(inputs: Tensor, filters: int, pool: bool, name: str) -> Tensor:
    """Conv, optional max-pooling, BN, ReLU."""
    outputs = _conv(filters, 3, 1, f"{name}_conv")(inputs)
    if pool:
        outputs = layers.MaxPooling2D(name=f"{name}_pool")(outputs)
    return layers.ReLU(name=f"{name}_relu")(_norm(f"{name}_norm")(outputs))


def _residual(inputs: Tensor, filters: int, name: str) -> Tensor:
    outputs = _unit(_unit(inputs, filters, False, f"{name}_unit1"), filters, False, f"{name}_unit2")
    return layers.Add(name=f"{name}_add")([inputs, outputs])


def _conv(filters: int, size: int, strides: int, name: str) -> Any:
    return layers.Conv2D(
        filters, size, strides=strides, padding="same", use_bias=False, kernel_initializer="he_normal", name=name
    )


def _norm(name: str) -> Any:
    return layers.BatchNormalization(momentum=0.9, name=name)
