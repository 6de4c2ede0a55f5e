"""A model_fn of tf.compat.v1.layers with batch normalisation, whose averages its UPDATE_OPS move."""

import tensorflow as tf


def model_fn(features, labels, mode, params):
    layers, training = tf.compat.v1.layers, mode == tf.estimator.ModeKeys.TRAIN
    x = layers.conv2d(features["image"], 16, 3, use_bias=False)
    x = tf.nn.relu(layers.batch_normalization(x, momentum=0.9, training=training))
    x = layers.flatten(layers.max_pooling2d(x, 2, 2))
    x = layers.dense(x, 32, use_bias=False)
    x = tf.nn.relu(layers.batch_normalization(x, momentum=0.9, training=training))
    logits = layers.dense(x, params["num_classes"])
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"probabilities": tf.nn.softmax(logits), "class_ids": tf.argmax(logits, axis=-1)}
        served = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs=served)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=-1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.02, 0.9)
    with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
