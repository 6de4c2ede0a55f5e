"""Networks, the Estimator model_fn, optimizers and strategies."""
