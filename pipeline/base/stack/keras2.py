"""Keras 2, which this project uses: `keras` with TensorFlow 2.15, `tf_keras` from 2.16 on."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

# The package that `tf.keras` comes from.
NAME: str = tf.keras.layers.Layer.__module__.partition(".")[0]


def internal(module: str) -> Any:
    """Imports a private module by its name below the package's `src`: `engine.base_layer`."""
    return importlib.import_module(f"{NAME}.src.{module}")
