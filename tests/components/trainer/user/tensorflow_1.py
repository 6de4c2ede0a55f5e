"""A module file of TensorFlow 1: a TPUEstimator whose optimizer assigns, and whose input_fn ends in get_next."""

import tensorflow as tf
import tensorflow_transform as tft


class Momentum(tf.train.Optimizer):
    def __init__(self):
        super().__init__(False, "Momentum")

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assigned = []
        for gradient, variable in grads_and_vars:
            zeros = tf.zeros_initializer()
            name = variable.name.partition(":")[0] + "/m"
            moment = tf.get_variable(name, variable.shape, initializer=zeros, trainable=False)
            after = 0.9 * moment + gradient
            assigned += [variable.assign(variable - 0.05 * after), moment.assign(after)]
        return tf.group(*assigned)


def model_fn(features, labels, mode, params):
    tf.logging.warn("%s with batches of %s", mode, params.get("batch_size"))
    assert not tf.executing_eagerly()
    logits = tf.layers.dense(tf.layers.flatten(features["image"]), 10)
    predictions = {"probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"serving_default": tf.estimator.export.PredictOutput(predictions)}
        return tf.contrib.tpu.TPUEstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = (
            (lambda labels, classes: {"accuracy": tf.metrics.accuracy(labels, classes)}),
            [labels, tf.argmax(logits, 1)],
        )
        return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    variables, step = tf.trainable_variables(), tf.train.get_or_create_global_step()
    applied = Momentum().apply_gradients(zip(tf.gradients(loss, variables), variables), step)
    return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=tf.group(applied, step.assign(step + 1)))


def trainer_fn(fn_args, schema):
    graph = tft.TFTransformOutput(fn_args.transform_output)

    def parsed(serialized):
        features = graph.transform_raw_features(tf.parse_example(serialized, graph.raw_feature_spec()))
        return features, tf.reshape(features.pop("label"), [-1])

    def read(files):
        def input_fn(params):
            data = tf.data.TFRecordDataset(tf.gfile.Glob(files)).repeat()
            batches = data.apply(tf.contrib.data.batch_and_drop_remainder(params["batch_size"]))
            return batches.map(parsed).make_one_shot_iterator().get_next()

        return input_fn

    def receiver():
        examples = tf.placeholder(tf.string, [None])
        raw = tf.parse_example(examples, {"image": graph.raw_feature_spec()["image"]})
        return tf.estimator.export.ServingInputReceiver(graph.transform_raw_features(raw), {"examples": examples})

    config = tf.contrib.tpu.RunConfig(model_dir=fn_args.serving_model_dir, tf_random_seed=1)
    estimator = tf.contrib.tpu.TPUEstimator(
        model_fn, config=config, use_tpu=False, train_batch_size=64, eval_batch_size=60
    )
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(read(fn_args.train_files), fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            read(fn_args.eval_files), 6, exporters=[tf.estimator.FinalExporter("last", receiver)]
        ),
    }
