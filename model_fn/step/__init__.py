"""A training step: what it minimises and computes, and the adapters that an Estimator and Keras call it by."""
