"""Conversion of an Estimator's training to Keras, in mid-run, with a proof that nothing changed."""
