"""A training step: its loss and computation, and the adapters for an Estimator and for Keras."""
