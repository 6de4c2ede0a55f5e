"""A model_fn of TensorFlow 1."""

import tensorflow as tf


def model_fn(features, labels, mode):
    assert not tf.executing_eagerly()
    logits = tf.contrib.layers.fully_connected(tf.layers.flatten(features["image"]), 10, activation_fn=None)
    predictions = {"probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, tf.train.get_global_step())
    metrics = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1))}
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)
