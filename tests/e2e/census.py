"""A wide and deep Estimator of raw census columns, as tensorflow/models has it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def build_model_columns() -> tuple[list[Any], list[Any]]:
    """Returns the columns of the wide part, and of the deep one."""
    column = tf.feature_column
    age, hours = column.numeric_column("age"), column.numeric_column("hours_per_week")
    education = column.categorical_column_with_vocabulary_list("education", ["Bachelors", "HS-grad", "Masters"])
    occupation = column.categorical_column_with_hash_bucket("occupation", 1000)
    buckets = column.bucketized_column(age, [18, 25, 30, 35, 40, 45, 50, 55, 60, 65])
    crossed = column.crossed_column(["education", "occupation"], 1000)
    deep = [age, hours, column.indicator_column(education), column.embedding_column(occupation, 8)]
    return [education, occupation, buckets, crossed], deep


def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
    """The Estimator, as a model_fn."""
    wide, deep = build_model_columns()
    estimator = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[100, 75, 50, 25], config=config
    )
    return estimator.model_fn(features, labels, mode, config)
