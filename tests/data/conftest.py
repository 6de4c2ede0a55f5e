"""Files of tf.Examples, and readers of them."""

from __future__ import annotations

import pytest

from tests.data.input_pipelines import RESIDENT, SIZES, TOTAL, flat, labels, write


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Eight files; the label and the four pixels of each example are its number."""
    folder = tmp_path_factory.mktemp("examples")
    numbers = iter(range(TOTAL))
    return [
        write(
            folder / f"data_tfrecord-{index:05d}-of-{len(SIZES):05d}",
            ((bytes([number] * 4), number) for _, number in zip(range(size), numbers)),
        )
        for index, size in enumerate(SIZES)
    ]


@pytest.fixture(scope="module")
def make_reader(files: list[str]):
    import tensorflow as tf

    from tfx_estimator.data.input_fn import ExampleReader
    from tfx_estimator.data.preprocessing import decode_images

    def make(image_shape=(2, 2, 1), **values):
        settings = {
            "train_files": files,
            "eval_files": files,
            "feature_spec": {
                "image": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64),
            },
            "transform": lambda raw: {**raw, "image": tf.cast(decode_images(raw["image"], image_shape), tf.float32)},
            "train_batch_size": 16,
            "eval_batch_size": 16,
            "shuffle_buffer": 64,
            "seed": 7,
            **values,
        }
        return ExampleReader(**settings)

    return make


@pytest.fixture(scope="module", params=RESIDENT.values(), ids=RESIDENT.keys())
def reader(make_reader, request: pytest.FixtureRequest):
    return lambda **values: make_reader(resident_bytes=request.param, **values)


@pytest.fixture(scope="module")
def order(reader) -> list[int]:
    """More than two epochs, in the order of one device."""
    return flat(labels(reader(train_batch_size=24).input_fn("train"), 15))
