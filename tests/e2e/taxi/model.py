"""Like the Estimator of the taxi template, which later releases have removed."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft
from models import features
from tensorflow_transform.tf_metadata import schema_utils
from tfx_bsl.public import tfxio


def _build_estimator(config):
    column, named = tf.feature_column, features.transformed_names
    numbers = [column.numeric_column(name, shape=()) for name in named(features.DENSE_FLOAT_FEATURE_KEYS)]
    counts = dict.fromkeys(named(features.VOCAB_FEATURE_KEYS), features.VOCAB_SIZE + features.OOV_SIZE)
    counts |= zip(named(features.BUCKET_FEATURE_KEYS), features.BUCKET_FEATURE_BUCKET_COUNT)
    counts |= zip(named(features.CATEGORICAL_FEATURE_KEYS), features.CATEGORICAL_FEATURE_MAX_VALUES)
    categories = [
        column.categorical_column_with_identity(name, num_buckets=count, default_value=0)
        for name, count in counts.items()
    ]
    return tf.estimator.DNNLinearCombinedClassifier(
        config=config,
        linear_feature_columns=categories,
        dnn_feature_columns=numbers,
        dnn_hidden_units=[16, 8],
    )


def _create_train_and_eval_spec(fn_args, schema):
    transform_output = tft.TFTransformOutput(fn_args.transform_output)

    def input_fn(files):
        options = tfxio.TensorFlowDatasetOptions(batch_size=40, label_key=features.transformed_name(features.LABEL_KEY))
        return fn_args.data_accessor.tf_dataset_factory(files, options, transform_output.transformed_metadata.schema)

    def serving_receiver_fn():
        spec = schema_utils.schema_as_feature_spec(schema).feature_spec
        spec.pop(features.LABEL_KEY)
        receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)()
        transformed = transform_output.transform_raw_features(receiver.features)
        return tf.estimator.export.ServingInputReceiver(transformed, receiver.receiver_tensors)

    config = tf.estimator.RunConfig(save_checkpoints_steps=999, keep_checkpoint_max=1)
    return {
        "estimator": _build_estimator(config.replace(model_dir=fn_args.serving_model_dir)),
        "train_spec": tf.estimator.TrainSpec(lambda: input_fn(fn_args.train_files), max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            lambda: input_fn(fn_args.eval_files),
            steps=fn_args.eval_steps,
            exporters=[tf.estimator.FinalExporter("chicago-taxi", serving_receiver_fn)],
            name="chicago-taxi-eval",
        ),
    }
