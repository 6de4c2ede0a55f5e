"""The way from an Estimator's training to a Keras one, in mid-run, with a proof that nothing changed."""
