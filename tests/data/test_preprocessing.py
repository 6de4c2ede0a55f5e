"""preprocessing_fn, run by TensorFlow Transform."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from tfx_estimator.components.image_schema_gen.executor import image_schema
from tfx_estimator.data.preprocessing import decode_images, encode_images, preprocessing_fn


def test_images_are_read_back_from_their_bytes():
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3, 2), dtype=np.uint8)
    raw = tf.constant([image.tobytes() for image in images])
    np.testing.assert_array_equal(decode_images(raw, (4, 3, 2)), images)
    np.testing.assert_array_equal(decode_images(raw[:, None], (4, 3, 2)), images)


@pytest.mark.parametrize("times", [0, 2])
def test_bytes_that_are_not_of_one_image_are_an_error(times):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_images(tf.constant([bytes(24 * times)] * 3), (4, 3, 2))
    assert decode_images(tf.constant([], tf.string), (4, 3, 2)).shape == (0, 4, 3, 2)


def test_images_become_bytes_again_in_the_serving_receiver():
    images = np.random.default_rng(0).integers(0, 256, (7, 9, 5, 3), dtype=np.uint8)
    assert encode_images(tf.constant(images)).numpy().tolist() == [image.tobytes() for image in images]


def test_each_channel_is_standardised_with_the_moments_of_the_whole_split(tmp_path):
    random = np.random.default_rng(1)
    # Channels with very different moments, the last one constant.
    images = np.stack(
        [random.integers(0, 50, (40, 6, 6)), random.integers(100, 256, (40, 6, 6)), np.full((40, 6, 6), 9)], axis=-1
    ).astype(np.uint8)
    rows = [{"image": image.tobytes(), "label": index % 10} for index, image in enumerate(images)]
    spec = schema_utils.schema_as_feature_spec(image_schema(10)).feature_spec
    metadata = dataset_metadata.DatasetMetadata.from_feature_spec(spec)
    options = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
    got: list = []
    with beam.Pipeline(argv=options) as pipeline, tft_beam.Context(temp_dir=str(tmp_path)):
        data = pipeline | beam.Create(rows)
        (transformed, _), _ = (data, metadata) | tft_beam.AnalyzeAndTransformDataset(
            lambda inputs: preprocessing_fn(inputs, {"image_shape": [6, 6, 3]})
        )
        _ = transformed | beam.Map(
            lambda row: np.save(tmp_path / f"{row['label']}-{hash(row['image'].tobytes())}", row["image"])
        )
    got = [np.load(path) for path in tmp_path.glob("*.npy")]
    values = np.stack(got)
    assert values.shape == (40, 6, 6, 3)
    np.testing.assert_allclose(values.mean(axis=(0, 1, 2)), 0.0, atol=1e-3)
    np.testing.assert_allclose(values.std(axis=(0, 1, 2))[:2], 1.0, atol=1e-3)
    assert np.isfinite(values).all()
