"""Small, made-up data that a working model learns within a few steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

IMAGE, VECTOR = "image", "x"
_NOISE = 0.1


def made_up(shape: Sequence[int], classes: int, examples: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Makes examples of each class in turn: its own random pattern, with noise.

    Args:
        shape: Of one example, without the batch.

    Returns:
        The features, float32 [examples, *shape] from 0 to 1, named `image` if they have three dimensions, else `x`; and
        the labels, int64 [examples].
    """
    random = np.random.default_rng(1)
    patterns = random.integers(0, 2, (classes, *shape))
    labels = np.arange(examples, dtype=np.int64) % classes
    noise = random.normal(0, _NOISE, (examples, *shape))
    values = np.clip(patterns[labels] * (1 - 2 * _NOISE) + _NOISE + noise, 0, 1).astype(np.float32)
    return {IMAGE if len(shape) == 3 else VECTOR: values}, labels


def given_or_made_up(features: Any, labels: Any, shape: Sequence[int], classes: int, examples: int) -> tuple[Any, Any]:
    """Returns what is given, and what is made up in place of the rest."""
    if features is not None:
        return features, labels
    made, own = made_up(shape, classes, examples)
    return made, own if labels is None else labels


def classes_of(predictions: Any) -> np.ndarray | None:
    """Returns the predicted class of each example, int64 [batch]; None if the predictions do not tell.

    Args:
        predictions: An array, or arrays by name, as a model_fn's predictions.
    """
    if isinstance(predictions, (list, tuple)):
        return None
    named = predictions if isinstance(predictions, dict) else {"predictions": predictions}
    for name in ("class_ids", "class_id", "classes", "class"):
        if name in named and np.issubdtype(np.asarray(named[name]).dtype, np.integer):
            return np.asarray(named[name]).reshape(-1)
    for name in ("probabilities", "logits", "scores", "predictions"):
        value = np.asarray(named.get(name, ()))
        if value.ndim == 2 and value.shape[1] > 1:
            return value.argmax(axis=1)
        if value.ndim == 2 and name in ("probabilities", "logits"):
            return (value[:, 0] > (0.5 if name == "probabilities" else 0)).astype(int)
    return None
