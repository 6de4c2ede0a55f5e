"""A whole model_fn, unchanged from its use with tf.estimator.Estimator."""

import tensorflow as tf


def model_fn(features, labels, mode, params):
    """Two convolutions, like in TensorFlow's first MNIST tutorials."""
    layers, training = tf.compat.v1.layers, mode == tf.estimator.ModeKeys.TRAIN
    x = layers.conv2d(features["image"], 16, 3, activation=tf.nn.relu)
    x = layers.max_pooling2d(x, 2, 2)
    x = layers.conv2d(x, 32, 3, activation=tf.nn.relu)
    x = layers.flatten(layers.max_pooling2d(x, 2, 2))
    x = layers.dense(x, 64, activation=tf.nn.relu)
    x = layers.dropout(x, params["dropout"], training=training)
    logits = layers.dense(x, params["num_classes"])

    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"probabilities": tf.nn.softmax(logits), "class_ids": tf.argmax(logits, axis=-1)}
        served = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs=served)

    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=-1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})

    optimizer = tf.compat.v1.train.AdamOptimizer(params["learning_rate"])
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
