"""Canned Estimators are trained in float32."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def float32():
    """What other tests of this process have left is not theirs."""
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("float32")
