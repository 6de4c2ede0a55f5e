"""preprocessing_fn, run by TensorFlow Transform."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.image_schema_gen.executor import image_schema
from tfx_estimator.data.preprocessing import decode_images, encode_images, preprocessing_fn
from tfx_estimator.testing import preprocess


def test_images_become_bytes_and_are_read_back_from_them():
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3, 2), dtype=np.uint8)
    raw = encode_images(tf.constant(images))
    assert raw.numpy().tolist() == [image.tobytes() for image in images]
    np.testing.assert_array_equal(decode_images(raw, (4, 3, 2)), images)
    np.testing.assert_array_equal(decode_images(raw[:, None], (4, 3, 2)), images)


@pytest.mark.parametrize("times", [0, 2])
def test_bytes_that_are_not_of_one_image_are_an_error(times):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_images(tf.constant([bytes(24 * times)] * 3), (4, 3, 2))
    assert decode_images(tf.constant([], tf.string), (4, 3, 2)).shape == (0, 4, 3, 2)


def test_each_channel_is_standardised_with_the_moments_of_the_whole_split():
    random = np.random.default_rng(1)
    # Channels with very different moments, the last one constant.
    images = np.stack(
        [random.integers(0, 50, (40, 6, 6)), random.integers(100, 256, (40, 6, 6)), np.full((40, 6, 6), 9)], axis=-1
    ).astype(np.uint8)
    rows = [{"image": image.tobytes(), "label": index % 10} for index, image in enumerate(images)]
    shape = {"image_shape": [6, 6, 3]}
    found = preprocess(preprocessing_fn, rows, schema=image_schema(10), label="label", custom_config=shape)
    values = np.stack(found["image"])
    assert values.shape == (40, 6, 6, 3)
    np.testing.assert_allclose(values.mean(axis=(0, 1, 2)), 0.0, atol=1e-3)
    np.testing.assert_allclose(values.std(axis=(0, 1, 2))[:2], 1.0, atol=1e-3)
    assert np.isfinite(values).all()
