"""tf.estimator, which a training task restores before it calls a model_fn; and processes like those of tasks."""

from tests.components.trainer.conftest import codes, tf_estimator  # noqa: F401
