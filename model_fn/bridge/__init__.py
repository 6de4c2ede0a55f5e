"""tf.estimator brought back, and a way out of it; needs TensorFlow, tf_keras and numpy alone."""
