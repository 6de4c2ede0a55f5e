"""The way out of tf.estimator that keeps the training graph: a SavedModel, and a Keras model that trains it further."""
