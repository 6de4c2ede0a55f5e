"""Conversion of a canned Estimator to the source code of a Keras model, with its weights and a proof."""
