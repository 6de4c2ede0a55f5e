"""Networks with an application of Keras, and a model_fn with its own optimizer, as users write them."""

import tensorflow as tf

layers = tf.keras.layers


def base():
    return tf.keras.applications.MobileNetV2(weights=None, include_top=False, alpha=0.35, input_shape=(32, 32, 3))


def _features(image, base, training=None):
    image = layers.Concatenate(name="rgb")([layers.ZeroPadding2D(2, name="pad")(image)] * 3)
    return layers.GlobalAveragePooling2D(name="pool")(base(image, training=training))


def network(num_classes):
    image = tf.keras.Input([28, 28, 1], name="image")
    return tf.keras.Model(image, layers.Dense(num_classes, name="head")(_features(image, base())))


def compiled(num_classes):
    model = network(num_classes)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.AdamW(0.01, weight_decay=0.1), loss)
    return model


def model_fn(features, labels, mode, params):
    """With Keras's application and its head, by TensorFlow 1's layers and optimizer."""
    training = mode == "train"
    hidden = _features(features["image"], base(), training)
    hidden = tf.compat.v1.layers.dense(hidden, 16, name="hidden")
    logits = tf.compat.v1.layers.dense(hidden, params["num_classes"], name="head")
    outputs = {"probabilities": tf.nn.softmax(logits)}
    if mode == "infer":
        exported = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs=exported)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    kernels = [each for each in tf.compat.v1.trainable_variables() if "kernel" in each.name]
    loss += 0.01 * tf.add_n([tf.nn.l2_loss(each) for each in kernels])
    step = tf.compat.v1.train.get_global_step()
    variables = tf.compat.v1.global_variables() if params.get("all") else None
    variables = [each for each in variables if each.dtype.is_floating] if variables else None
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.01, 0.9)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, step, variables))
