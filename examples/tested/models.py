"""Two model_fns and a network, and the options that train the network."""

import tensorflow as tf

v1 = tf.compat.v1
TRAINER = {"optimizer": {"name": "adam", "learning_rate": 0.001}}


def classify(features, labels, mode):
    """Classifies images into ten classes."""
    x = v1.layers.dense(v1.layers.flatten(features["image"]), 64, tf.nn.relu)
    x = v1.layers.batch_normalization(x, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = v1.layers.dense(x, 10)
    predictions = {"classes": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        train_op = v1.train.AdamOptimizer(0.001).minimize(loss, v1.train.get_global_step())
    metrics = {"accuracy": v1.metrics.accuracy(labels, predictions["classes"])}
    return tf.estimator.EstimatorSpec(mode, predictions, loss, train_op, metrics)


def regress(features, labels, mode):
    """Predicts a number from five."""
    x = v1.layers.dense(features["x"], 32, tf.nn.relu)
    answer = tf.squeeze(v1.layers.dense(x, 1), 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"answer": answer})
    loss = tf.reduce_mean(tf.square(answer - labels))
    train_op = v1.train.AdamOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def network(num_classes):
    """A network for `trainer.model`."""
    layers = tf.keras.layers
    hidden = [layers.Conv2D(8, 3, 2, activation="relu"), layers.Flatten()]
    return tf.keras.Sequential([*hidden, layers.Dense(num_classes)])
