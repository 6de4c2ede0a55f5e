"""A trainer_fn with a canned Estimator, like TFX's taxi_utils.py; it has no code for distribution."""

from __future__ import annotations

import cancer_features as features
import tensorflow as tf
import tensorflow_model_analysis as tfma
import tensorflow_transform as tft


def _columns(transform_output):
    column = tf.feature_column
    scaled = [column.numeric_column(name) for name in features.SCALED]
    categories = [column.categorical_column_with_identity(name, count) for name, count in features.BUCKETS.items()]
    words = transform_output.vocabulary_size_by_name(features.VOCABULARY)
    categories.append(column.categorical_column_with_identity(features.VOCABULARY, words, default_value=0))
    return scaled, categories


def trainer_fn(fn_args, schema):
    transform_output = tft.TFTransformOutput(fn_args.transform_output)
    scaled, categories = _columns(transform_output)
    raw_spec = transform_output.raw_feature_spec()

    def data(files, epochs):
        return features.batches(files, fn_args.data_accessor, transform_output, epochs)

    def serving_receiver():
        spec = {name: kind for name, kind in raw_spec.items() if name != features.LABEL}
        receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)()
        transformed = transform_output.transform_raw_features(receiver.features)
        return tf.estimator.export.ServingInputReceiver(transformed, receiver.receiver_tensors)

    def eval_receiver():
        serialized = tf.compat.v1.placeholder(tf.string, [None], name="input_example_tensor")
        raw = tf.io.parse_example(serialized, raw_spec)
        transformed = transform_output.transform_raw_features(raw)
        label = transformed.pop(features.LABEL)
        return tfma.export.EvalInputReceiver(
            features={**raw, **transformed}, labels=label, receiver_tensors={"examples": serialized}
        )

    config = tf.estimator.RunConfig(save_checkpoints_steps=100, keep_checkpoint_max=1, tf_random_seed=7)
    estimator = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=categories,
        dnn_feature_columns=scaled,
        dnn_hidden_units=[16, 8],
        # Unlike Adam's, their steps scale with the gradients.
        dnn_optimizer=tf.keras.optimizers.legacy.SGD(0.1),
        linear_optimizer=tf.keras.optimizers.legacy.Adagrad(0.05),
        config=config.replace(model_dir=fn_args.serving_model_dir),
    )
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(lambda: data(fn_args.train_files, None), max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            lambda: data(fn_args.eval_files, 1),
            steps=None,
            exporters=[tf.estimator.FinalExporter("cancer", serving_receiver)],
            name="cancer-eval",
        ),
        "eval_input_receiver_fn": eval_receiver,
    }
