"""A run_fn like in TensorFlow's guide to parameter servers: the chief coordinates, the others serve until it ends."""

from __future__ import annotations

import cancer_features as features
import cancer_keras
import tensorflow as tf
import tensorflow_transform as tft


def run_fn(fn_args):
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol=resolver.rpc_layer or "grpc",
            start=True,
        )
        server.join()
    resolver.rpc_layer = "grpc"
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    transform_output = tft.TFTransformOutput(fn_args.transform_output)

    def batches(files):
        spec = transform_output.transformed_feature_spec()
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(files), "GZIP").shuffle(500, seed=11).repeat()
        parsed = records.batch(features.BATCH).map(lambda each: tf.io.parse_example(each, spec))
        return parsed.map(lambda each: cancer_keras.inputs_of(each, each.pop(features.LABEL)))

    def data(files):
        return tf.keras.utils.experimental.DatasetCreator(lambda context: batches(files))

    cancer_keras.train_and_save(fn_args, strategy, data)
