"""The Estimator path: train_and_evaluate on what a trainer_fn returns."""

from tfx_estimator.pipeline.base.stack.estimator import bring_back_estimator

# Its modules derive from what is there.
bring_back_estimator()
