"""DeepCTR's DeepFM, of a table's raw columns."""

import tensorflow as tf
from deepctr.estimator import DeepFMEstimator


def model_fn(features, labels, mode, config):
    column = tf.feature_column
    words = [column.categorical_column_with_hash_bucket(f"c{index}", 1000) for index in range(1, 27)]
    # Small at first: a factorization machine adds up the products of all pairs.
    start = tf.keras.initializers.RandomNormal(0.0, 1e-4)
    embeddings = [column.embedding_column(each, 4, initializer=start) for each in words]
    numbers = [
        column.numeric_column(f"i{index}", normalizer_fn=lambda x: tf.math.log1p(tf.cast(x, tf.float32)))
        for index in range(1, 14)
    ]
    estimator = DeepFMEstimator([*words, *numbers], [*embeddings, *numbers], task="binary", config=config)
    return estimator.model_fn(features, labels, mode, config)
