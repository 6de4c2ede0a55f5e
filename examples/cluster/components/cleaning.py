import tensorflow as tf
from data.sizes import SCALE


def preprocessing_fn(inputs, custom_config):
    flat = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    image = tf.cast(tf.reshape(flat, [-1, *custom_config["image_shape"]]), tf.float32) / SCALE
    return {"image": image, "label": tf.reshape(inputs["label"], [-1])}
