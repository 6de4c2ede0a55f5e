"""From Keras 2 to Keras 3, of a conversion: in a process of its own, since `tf.keras` is one of the two."""
