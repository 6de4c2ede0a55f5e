"""A repeated batch of 12 images of 3 classes, and the params of a model_fn to train on it."""

from __future__ import annotations

from typing import Any

import numpy as np

IMAGES = np.random.default_rng(0).random((12, 28, 28, 1), np.float32)
LABELS = (np.arange(12) % 3).astype(np.int64)
PARAMS: dict[str, Any] = {
    "num_classes": 3,
    "train_steps": 10,
    "global_batch_size": 12,
    "seed": 1,
    "optimizer": {"name": "sgd", "learning_rate": 0.1, "schedule": "constant"},
}


def input_fn() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(({"image": IMAGES}, LABELS)).repeat()
