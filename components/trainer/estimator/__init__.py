"""The Estimator path: train_and_evaluate on what a trainer_fn returns."""
