"""tf.estimator, which each training task has before it calls a model_fn."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def tf_estimator() -> None:
    """Brings it back where TensorFlow has it no more."""
    from tfx_estimator.pipeline.base.stack.estimator import bring_back_estimator

    bring_back_estimator()
