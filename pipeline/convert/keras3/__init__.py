"""Conversion from Keras 2 to Keras 3, in a separate process, since `tf.keras` is either of them."""
