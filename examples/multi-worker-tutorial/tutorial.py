"""TensorFlow's tutorial on multi-worker training with an Estimator: its model_fn and input_fn, in a trainer_fn."""

import tensorflow as tf

BUFFER_SIZE = 10_000
BATCH_SIZE = 64
LEARNING_RATE = 1e-4
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def scale(image):
    """Converts bytes of images to floats from 0 to 1, [batch, 28, 28, 1]."""
    return tf.cast(tf.reshape(tf.io.decode_raw(image, tf.uint8), [-1, 28, 28, 1]), tf.float32) / 255


def model_fn(features, labels, mode):
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    logits = model(features, training=False)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"logits": logits, "probabilities": tf.nn.softmax(logits)}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)

    # The mean over a replica's own batch; `minimize` makes it the mean over all replicas.
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    loss = tf.reduce_sum(cross_entropy(labels, logits)) * (1.0 / BATCH_SIZE)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)

    optimizer = tf.compat.v1.train.GradientDescentOptimizer(LEARNING_RATE)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def trainer_fn(fn_args, schema):
    def input_fn(mode, input_context=None):
        training = mode == tf.estimator.ModeKeys.TRAIN
        examples = tf.data.TFRecordDataset(tf.io.gfile.glob(fn_args.train_files if training else fn_args.eval_files))
        if input_context:
            examples = examples.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

        def parse(serialized):
            features = tf.io.parse_single_example(serialized, FEATURES)
            return scale(features["image"])[0], features["label"]

        examples = examples.map(parse).cache()
        if training:
            examples = examples.shuffle(BUFFER_SIZE, seed=1).repeat()
        return examples.batch(BATCH_SIZE)

    def serving_input_receiver_fn():
        serialized = tf.compat.v1.placeholder(tf.string, [None])
        image = tf.io.parse_example(serialized, {"image": FEATURES["image"]})["image"]
        return tf.estimator.export.TensorServingInputReceiver(scale(image), {"examples": serialized})

    return {
        "estimator": tf.estimator.Estimator(model_fn, fn_args.serving_model_dir),
        "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            input_fn, steps=None, exporters=tf.estimator.FinalExporter("final", serving_input_receiver_fn)
        ),
    }
