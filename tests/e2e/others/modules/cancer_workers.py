"""In the manner of TensorFlow's guide to several workers: a run_fn with Keras, which TF_CONFIG tells of the others."""

from __future__ import annotations

import cancer_keras
import tensorflow as tf


def run_fn(fn_args):
    # First of all: TensorFlow must not have run anything before.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    cancer_keras.train_and_save(fn_args, strategy, cancer_keras.read(fn_args))
