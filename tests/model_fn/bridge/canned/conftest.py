"""Canned Estimators are trained in float32."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def float32():
    """Resets the precision policy that other tests may have changed."""
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("float32")
