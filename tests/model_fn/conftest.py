"""tf.estimator, which each training task has before it calls a model_fn; and processes as such tasks begin."""

from tests.components.trainer.conftest import codes, tf_estimator

__all__ = ["codes", "tf_estimator"]
