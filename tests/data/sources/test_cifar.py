"""CIFAR binary batches, whole and damaged."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data.sizes import opened, read_all, split_sizes
from tfx_estimator.data.sources.splits import ExampleRange

_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def _images(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), np.uint8)


def _batch(images, *labels):
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([*(np.array(label, np.uint8)[:, None] for label in labels), planes], axis=1).tobytes()


@pytest.fixture
def cifar10(tmp_path):
    for number in range(1, 6):
        labels = [(number + i) % 10 for i in range(4)]
        (tmp_path / f"data_batch_{number}.bin").write_bytes(_batch(_images(4, number), labels))
    (tmp_path / "test_batch.bin").write_bytes(_batch(_images(3, 9), [7, 8, 9]))
    (tmp_path / "batches.meta.txt").write_text("\n".join(_NAMES) + "\n\n")
    (tmp_path / "readme.html").write_text("<html>")
    return tmp_path


def test_cifar10_reads_its_batches_in_order(cifar10):
    source = opened(cifar10)
    source.prepare()
    assert (source.info.name, source.info.image_shape) == ("cifar10", (32, 32, 3))
    assert source.info.label_names == tuple(_NAMES)
    assert split_sizes(source) == {"train": 20, "test": 3}
    pairs = list(source.read(ExampleRange("train", 2, 9)))  # ends in the third file
    expected = np.concatenate([_images(4, 1), _images(4, 2), _images(4, 3)])[2:9]
    np.testing.assert_array_equal(np.stack([image for image, _ in pairs]), expected)
    assert [label for _, label in pairs] == [3, 4, 2, 3, 4, 5, 3]
    assert [label for _, label in read_all(source, "test")] == [7, 8, 9]


def test_cifar100_has_fine_labels(tmp_path):
    (tmp_path / "train.bin").write_bytes(_batch(_images(2, 1), [19, 3], [99, 42]))
    (tmp_path / "test.bin").write_bytes(_batch(_images(1, 2), [1], [0]))
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"class {i}" for i in range(100)))
    source = opened(tmp_path)
    assert (source.info.name, source.info.num_classes) == ("cifar100", 100)
    pairs = read_all(source)
    assert [label for _, label in pairs] == [99, 42]
    np.testing.assert_array_equal(pairs[1][0], _images(2, 1)[1])


def test_a_changed_batch_changes_the_fingerprint_only_where_it_is_used(cifar10):
    train, test = (opened(cifar10).fingerprint([split]) for split in ("train", "test"))
    (cifar10 / "test_batch.bin").write_bytes(_batch(_images(3, 10), [7, 8, 9]))
    assert opened(cifar10).fingerprint(["train"]) == train
    assert opened(cifar10).fingerprint(["test"]) != test
