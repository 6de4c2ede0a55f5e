"""A TFX module file for a table, as users have them: it knows nothing of distribution."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.tfxio import dataset_options

LABEL = "benign"
SCALED = ("mean_concave_points", "worst_texture", "worst_perimeter", "worst_smoothness")
BUCKETS = {"mean_concavity": 8, "worst_area": 8}
VOCABULARY = "size"
BATCH = 64


def preprocessing_fn(inputs):
    outputs = {name: tft.scale_to_z_score(_dense(inputs[name])) for name in SCALED}
    outputs.update({name: tft.bucketize(_dense(inputs[name]), count) for name, count in BUCKETS.items()})
    outputs[VOCABULARY] = tft.compute_and_apply_vocabulary(inputs[VOCABULARY], vocab_filename=VOCABULARY)
    outputs[LABEL] = _dense(inputs[LABEL])
    return outputs


def _dense(feature):
    if isinstance(feature, tf.SparseTensor):
        feature = tf.sparse.to_dense(feature)
    return tf.reshape(feature, [-1])


def _columns(transform_output):
    column = tf.feature_column
    scaled = [column.numeric_column(name) for name in SCALED]
    categories = [column.categorical_column_with_identity(name, count) for name, count in BUCKETS.items()]
    words = transform_output.vocabulary_size_by_name(VOCABULARY)
    categories.append(column.categorical_column_with_identity(VOCABULARY, words, default_value=0))
    return scaled, categories


def trainer_fn(fn_args, schema):
    transform_output = tft.TFTransformOutput(fn_args.transform_output)
    scaled, categories = _columns(transform_output)
    raw_spec = transform_output.raw_feature_spec()

    def data(files, epochs):
        options = dataset_options.TensorFlowDatasetOptions(
            batch_size=BATCH, label_key=LABEL, num_epochs=epochs, shuffle_seed=11
        )
        return fn_args.data_accessor.tf_dataset_factory(files, options, transform_output.transformed_metadata.schema)

    def serving_receiver():
        spec = {name: kind for name, kind in raw_spec.items() if name != LABEL}
        receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)()
        features = transform_output.transform_raw_features(receiver.features)
        return tf.estimator.export.ServingInputReceiver(features, receiver.receiver_tensors)

    config = tf.estimator.RunConfig(save_checkpoints_steps=100, keep_checkpoint_max=1, tf_random_seed=7)
    estimator = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=categories,
        dnn_feature_columns=scaled,
        dnn_hidden_units=[16, 8],
        # Unlike Adam's, their steps are as long as the gradients say.
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
    }
