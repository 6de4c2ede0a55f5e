"""In the manner of TensorFlow's guide to parameter servers: the chief coordinates, the others serve until it ends."""

from __future__ import annotations

import cancer_features as features
import cancer_keras
import tensorflow as tf


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
    cancer_keras.train_and_save(fn_args, tf.distribute.ParameterServerStrategy(resolver), features.BATCH)
