"""Estimators like in TensorFlow's models and guides; `custom_config` names one. None has code for strategies.

Their initial weights have fixed seeds, so that every strategy, and plain tf.estimator, starts from equal weights.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow_estimator.python.estimator.canned import head as head_v1

SIDE, CLASSES, BATCH = 8, 10, 32
RATE = 0.05
layers, train = tf.compat.v1.layers, tf.compat.v1.train


def _weights(seed):
    return tf.compat.v1.initializers.glorot_uniform(seed)


def _keras_weights(seed):
    return tf.keras.initializers.GlorotUniform(seed)


def create_model(dropout=0.0, first=()):
    keras = tf.keras.layers
    return tf.keras.Sequential(
        [
            *first,
            keras.Reshape([SIDE, SIDE, 1]),
            keras.Conv2D(8, 3, padding="same", activation=tf.nn.relu, kernel_initializer=_keras_weights(1)),
            keras.MaxPooling2D(2),
            keras.Flatten(),
            keras.Dense(32, activation=tf.nn.relu, kernel_initializer=_keras_weights(2)),
            keras.Dropout(dropout),
            keras.Dense(CLASSES, kernel_initializer=_keras_weights(3)),
        ]
    )


def classic(features, labels, mode, params):
    """The model_fn of official/mnist in tensorflow/models."""
    model = create_model(params["dropout"])
    image = features["x"] if isinstance(features, dict) else features
    if mode == tf.estimator.ModeKeys.PREDICT:
        logits = model(image, training=False)
        predictions = {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
        export = {"serving_default": tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.EstimatorSpec(mode, predictions, export_outputs=export)
    logits = model(image, training=mode == tf.estimator.ModeKeys.TRAIN)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.compat.v1.metrics.accuracy(labels=labels, predictions=tf.argmax(logits, axis=1))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = train.AdamOptimizer(learning_rate=params["learning_rate"])
    tf.identity(params["learning_rate"], "learning_rate")
    tf.identity(accuracy[1], name="train_accuracy")
    train_op = optimizer.minimize(loss, train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def normalised(features, labels, mode):
    """Uses tf.compat.v1.layers, with batch normalisation and its UPDATE_OPS."""
    training = mode == tf.estimator.ModeKeys.TRAIN
    hidden = layers.dense(features["x"], 32, kernel_initializer=_weights(1))
    hidden = tf.nn.relu(layers.batch_normalization(hidden, momentum=0.9, training=training))
    logits = layers.dense(hidden, CLASSES, kernel_initializer=_weights(2))
    if mode == tf.estimator.ModeKeys.PREDICT:
        export = {"serving_default": tf.estimator.export.PredictOutput({"logits": logits})}
        return tf.estimator.EstimatorSpec(mode, {"logits": logits}, export_outputs=export)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
        train_op = train.MomentumOptimizer(RATE, 0.9).minimize(loss, train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _logits(features):
    hidden = layers.dense(features["x"], 32, tf.nn.relu, kernel_initializer=_weights(1))
    return layers.dense(hidden, CLASSES, kernel_initializer=_weights(2))


def _by_minimize(loss):
    return train.GradientDescentOptimizer(RATE).minimize(loss, train.get_global_step())


def _by_minimize_of_sums(loss):
    return train.GradientDescentOptimizer(RATE / BATCH).minimize(loss, train.get_global_step())


def head1(features, labels, mode):
    """Uses the head of TensorFlow 1, whose loss is a sum over the batch by default."""
    head = head_v1._multi_class_head_with_softmax_cross_entropy_loss(CLASSES)
    return head.create_estimator_spec(features, mode, _logits(features), labels, train_op_fn=_by_minimize_of_sums)


def head1_mean(features, labels, mode):
    """Uses the same head with a mean."""
    mean = tf.compat.v1.losses.Reduction.SUM_OVER_BATCH_SIZE
    head = head_v1._multi_class_head_with_softmax_cross_entropy_loss(CLASSES, loss_reduction=mean)
    return head.create_estimator_spec(features, mode, _logits(features), labels, train_op_fn=_by_minimize)


def head2(features, labels, mode):
    """Uses the head of TensorFlow 2 with an optimizer of Keras."""
    optimizer = tf.keras.optimizers.legacy.SGD(RATE)
    optimizer.iterations = train.get_or_create_global_step()
    logits = _logits(features)
    return tf.estimator.MultiClassHead(CLASSES).create_estimator_spec(
        features,
        mode,
        logits,
        labels,
        optimizer=optimizer,
        trainable_variables=tf.compat.v1.trainable_variables(),
    )


def head2_minimize(features, labels, mode):
    """Uses the same head with an optimizer of TensorFlow 1."""
    head = tf.estimator.MultiClassHead(CLASSES)
    return head.create_estimator_spec(features, mode, _logits(features), labels, train_op_fn=_by_minimize)


def _from_keras(config):
    model = create_model(first=[tf.keras.Input([SIDE * SIDE], name="x")])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.legacy.SGD(RATE), loss, metrics=["accuracy"])
    return tf.keras.estimator.model_to_estimator(model, config=config)


MODEL_FNS = {each.__name__: each for each in (classic, normalised, head1, head1_mean, head2, head2_minimize)}


def trainer_fn(fn_args, schema):
    name = fn_args.custom_config["model"]
    parts = fn_args.custom_config.get("parts", 1)
    spec = {"x": tf.io.FixedLenFeature([SIDE * SIDE], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(serialized):
        features = tf.io.parse_example(serialized, spec)
        label = features.pop("label")
        # Equal examples in each part of a batch, or different ones.
        return tf.nest.map_structure(lambda rows: tf.concat([rows] * parts, axis=0), (features, label))

    def read(files):
        return tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(files)))

    def train_input():
        return read(fn_args.train_files).shuffle(1000, seed=5).repeat().batch(BATCH // parts).map(parse)

    def receiver():
        x = tf.compat.v1.placeholder(tf.float32, [None, SIDE * SIDE])
        return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})

    config = tf.estimator.RunConfig(
        fn_args.serving_model_dir, tf_random_seed=3, save_checkpoints_steps=fn_args.train_steps, save_summary_steps=1
    )
    if name == "model_to_estimator":
        estimator = _from_keras(config)
    else:
        params = {"learning_rate": 1e-3, "dropout": 0.0} if name == "classic" else None
        estimator = tf.estimator.Estimator(MODEL_FNS[name], config=config, params=params)
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(train_input, max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            lambda: read(fn_args.eval_files).batch(100).map(parse),
            steps=None,
            exporters=tf.estimator.FinalExporter("digits", receiver),
        ),
    }
