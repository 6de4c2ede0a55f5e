"""Wide and deep models of Criteo's columns, whose embeddings have up to a million rows of 16 numbers."""

from __future__ import annotations

import tempfile
from typing import Any

from tests.bench import ctr
from tfx_estimator import bring_back_estimator

BATCH, SIZE = 512, 16
_ROWS = 40_000


def train(slices: Any, side: str, steps: int) -> None:
    """Trains with an Estimator, on batches in memory.

    Args:
        side: `ours`: the built-in `wide_deep`; `tensorflow`: TensorFlow's DNNLinearCombinedClassifier, as it runs.
        steps: Of one slice, and of the warm-up.
    """
    bring_back_estimator()
    import tensorflow as tf

    sizes = dict(zip(ctr.WORDS, ctr.SIZES))
    config = tf.estimator.RunConfig(save_checkpoints_steps=10**9, tf_random_seed=1)
    folder = tempfile.mkdtemp()
    if side == "ours":
        from tfx_estimator.model_fn import tables

        params = {
            "task": "binary",
            "num_classes": 2,
            "vocabularies": sizes,
            "weight": "",
            "optimizer": {"name": "adagrad", "learning_rate": 0.05, "schedule": "constant"},
            "train_steps": 10**9,
            "embedding_size": SIZE,
            "hidden_units": [64, 32],
        }
        estimator = tf.estimator.Estimator(tables.wide_deep, folder, config, params)
    else:
        scaffold, column = tf.compat.v1.train.Scaffold, tf.feature_column
        # Without what `bring_back_estimator` mends.
        scaffold.finalize = scaffold.finalize.__wrapped__
        words = [column.categorical_column_with_identity(name, size) for name, size in sizes.items()]
        deep = [*map(column.numeric_column, ctr.NUMBERS), *(column.embedding_column(word, SIZE) for word in words)]
        estimator = tf.estimator.DNNLinearCombinedClassifier(
            folder, words, dnn_feature_columns=deep, dnn_hidden_units=[64, 32], config=config
        )
    estimator.train(_batches, hooks=[slices.hook(steps, BATCH)])


def _batches() -> Any:
    """Returns the same batches again and again."""
    import numpy as np
    import tensorflow as tf

    blocks = list(ctr.columns(_ROWS))
    data = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    data.update({name: np.log1p(np.nan_to_num(data[name])).astype(np.float32) for name in ctr.NUMBERS})
    label = data.pop(ctr.LABEL)
    return tf.data.Dataset.from_tensor_slices((data, label)).batch(BATCH, drop_remainder=True).cache().repeat()
