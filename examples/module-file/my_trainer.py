"""An existing module file of a Trainer: its own input_fn, its own receivers."""

import tensorflow as tf
import tensorflow_transform as tft


def model_fn(features, labels, mode):
    logits = tf.compat.v1.layers.dense(features["pixels"], 10)
    outputs = {"scores": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        export = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs=export)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def trainer_fn(fn_args, schema):
    graph = tft.TFTransformOutput(fn_args.transform_output)
    spec = graph.raw_feature_spec()

    def parse(serialized):
        features = graph.transform_raw_features(tf.io.parse_example(serialized, spec))
        return features, tf.reshape(features.pop("label"), [-1])

    def data(patterns, epochs):
        files = tf.io.gfile.glob(patterns)
        return tf.data.TFRecordDataset(files).repeat(epochs).shuffle(2000, seed=1).batch(64).map(parse)

    def receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None])
        raw = tf.io.parse_example(examples, {"image": spec["image"]})
        return tf.estimator.export.ServingInputReceiver(graph.transform_raw_features(raw), {"examples": examples})

    return {
        "estimator": tf.estimator.Estimator(model_fn, fn_args.serving_model_dir),
        "train_spec": tf.estimator.TrainSpec(lambda: data(fn_args.train_files, None), fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            lambda: data(fn_args.eval_files, 1),
            steps=fn_args.eval_steps,
            exporters=tf.estimator.LatestExporter("latest", receiver),
        ),
    }
