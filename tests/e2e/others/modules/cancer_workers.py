"""A run_fn with Keras that reads the cluster from TF_CONFIG, like in TensorFlow's guide to several workers."""

from __future__ import annotations

import cancer_keras
import tensorflow as tf


def run_fn(fn_args):
    # First: it must precede TensorFlow's first op.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    cancer_keras.train_and_save(fn_args, strategy, cancer_keras.read(fn_args))
