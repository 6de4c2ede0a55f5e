"""Keras 2, whose layers and optimizers this project knows: `keras` of TensorFlow 2.15, `tf_keras` from 2.16 on."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

# The package that `tf.keras` comes from.
NAME: str = tf.keras.layers.Layer.__module__.partition(".")[0]


def internal(module: str) -> Any:
    """Imports a module that is not public, from below the package's `src`: `engine.base_layer`."""
    return importlib.import_module(f"{NAME}.src.{module}")
