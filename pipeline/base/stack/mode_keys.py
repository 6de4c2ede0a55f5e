"""What a model_fn and an input_fn are called for."""

from __future__ import annotations


class ModeKeys:
    """The words of `tf.estimator.ModeKeys`: of the Keras paths too, which need no tf.estimator."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"
