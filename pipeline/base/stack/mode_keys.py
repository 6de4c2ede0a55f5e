"""The modes of a model_fn and an input_fn."""

from __future__ import annotations


class ModeKeys:
    """The values of `tf.estimator.ModeKeys`, also for the Keras paths, which need no tf.estimator."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"
