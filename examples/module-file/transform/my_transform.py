"""An existing module file of a Transform."""

import tensorflow as tf


def preprocessing_fn(inputs):
    pixels = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    return {"pixels": tf.reshape(tf.cast(pixels, tf.float32) / 255.0, [-1, 784]), "label": inputs["label"]}
