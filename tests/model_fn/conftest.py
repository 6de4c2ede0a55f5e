"""tf.estimator, which each training task has before it calls a model_fn."""

from tests.components.trainer.conftest import tf_estimator

__all__ = ["tf_estimator"]
