"""A canned Estimator, written as the source code of a Keras model, with its weights and a proof."""
