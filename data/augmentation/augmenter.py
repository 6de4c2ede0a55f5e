"""Applies the declared operations, in their order, to batches of training examples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfx_estimator.data.augmentation.draws import Draws
from tfx_estimator.data.augmentation.operations import (
    MOVES,
    add_noise,
    brighten,
    contrast,
    cut_out,
    move,
    rotate,
    saturate,
    zoom,
)
from tfx_estimator.data.features import IMAGE
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config import augment

_OTHERS: dict[type, Callable[[tf.Tensor, Any, Draws], tf.Tensor]] = {
    augment.RandomRotation: rotate,
    augment.RandomZoom: zoom,
    augment.RandomBrightness: brighten,
    augment.RandomContrast: contrast,
    augment.RandomSaturation: saturate,
    augment.Cutout: cut_out,
    augment.GaussianNoise: add_noise,
}


@dataclass(frozen=True)
class Augmenter:
    """Augments training images; the result depends only on the seed and an image's position.

    Args:
        operations: At least one.
        stream: Distinguishes examples of equal position, if each input pipeline counts its own.
    """

    operations: Sequence[augment.Operation]
    seed: int
    stream: int = 0

    def __call__(self, features: dict[str, tf.Tensor], positions: tf.Tensor) -> dict[str, tf.Tensor]:
        """Augments a batch.

        Args:
            features: Transformed features; `image`: float, [batch, height, width, channels].
            positions: int64, [batch]: the number of examples before each, over all epochs.
        """
        images = _images(features)
        draws = Draws(positions, self.seed, self.stream)
        declared = (options for operation in self.operations for options in operation.declared.values())
        for is_move, group in itertools.groupby(declared, lambda options: isinstance(options, MOVES)):
            if is_move:
                images = move(images, [each for each in group if isinstance(each, MOVES)], draws)
            else:
                for options in group:
                    images = _OTHERS[type(options)](images, options, draws)
        return {**features, IMAGE: images}


def _images(features: dict[str, tf.Tensor]) -> tf.Tensor:
    images = features.get(IMAGE)
    if images is None:
        found = f"returns {', '.join(sorted(features)) or 'nothing'}, and no `{IMAGE}`"
    elif not isinstance(images, tf.Tensor) or not images.dtype.is_floating:
        found = f"returns an `{IMAGE}` that is not a dense float tensor"
    elif images.shape.rank != 4 or None in images.shape[1:].as_list():
        found = f"returns an `{IMAGE}` of shape {images.shape}"
    else:
        return images
    raise UserCodeError(
        f"trainer.augment varies images, but the preprocessing_fn {found}",
        expected=f"`{IMAGE}`: float, [batch, height, width, channels], all static except the batch",
        todo="return it from the preprocessing_fn, or remove trainer.augment",
    )
