"""What is trained: networks, the Estimator model_fn, optimizers, strategies."""
