"""IDX files, whole and damaged."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.data.sizes import opened, split_sizes
from tests.data.sources.conftest import write_idx
from tests.refusals import refused
from tests.root import run_python
from tfx_estimator.pipeline.base.errors import DamagedDataError


def _read_all(source, expression="train"):
    pairs = [pair for part in source.resolve(expression) for pair in source.read(part)]
    return np.stack([image for image, _ in pairs]), [label for _, label in pairs]


def test_images_and_labels_come_as_they_are_stored(idx_folder, idx_images):
    source = opened(idx_folder)
    source.prepare()
    assert (source.info.name, source.info.image_shape) == ("idx", (5, 4, 1))
    assert source.info.label_names == tuple("0123456789")
    assert split_sizes(source) == {"train": 700, "test": 20}
    for split, (images, labels) in idx_images.items():
        read, read_labels = _read_all(source, split)
        np.testing.assert_array_equal(read[..., 0], images)
        assert read_labels == labels.tolist()


def test_a_source_can_be_sent_to_another_process(idx_folder):
    source = pickle.loads(pickle.dumps(opened(idx_folder)))
    assert split_sizes(source) == {"train": 700, "test": 20}


def test_other_names_colour_and_named_classes(tmp_path):
    images = np.arange(3 * 2 * 2 * 3, dtype=np.uint8).reshape(3, 2, 2, 3)
    write_idx(tmp_path / "train-images.idx4-ubyte", images)
    write_idx(tmp_path / "train-labels.idx1-ubyte", np.array([0, 1, 1], np.uint8))
    (tmp_path / "label_names.txt").write_text("cat\ndog\nfish\n")
    source = opened(tmp_path)
    assert (source.info.image_shape, source.info.label_names) == ((2, 2, 3), ("cat", "dog", "fish"))
    np.testing.assert_array_equal(_read_all(source)[0], images)


@pytest.mark.parametrize("names", ["abcabdefgh", ["cafe\u0301", "caf\u00e9", *"abcdefgh"]])
def test_a_class_that_is_named_twice_is_refused(idx_folder, names):
    (idx_folder / "label_names.txt").write_text("\n".join(names), encoding="utf-8")
    with pytest.raises(DamagedDataError, match=r"label_names\.txt: it names '(a|caf\u00e9)' more than once"):
        opened(idx_folder)


def test_image_size_resizes(idx_folder):
    source = opened(idx_folder, image_size=(10, 8))
    assert source.info.image_shape == (10, 8, 1)
    images, labels = _read_all(source, "test")
    assert (images.shape, images.dtype) == ((20, 10, 8, 1), np.uint8)
    assert labels == [index % 10 for index in range(20)]


def test_declared_channels(idx_folder, idx_images):
    source = opened(idx_folder, channels=3)
    assert source.info.image_shape == (5, 4, 3)
    np.testing.assert_array_equal(_read_all(source, "test")[0], np.stack([idx_images["test"][0]] * 3, axis=-1))
    assert source.fingerprint(["train"]) != opened(idx_folder).fingerprint(["train"])


def test_the_fingerprint_follows_contents_splits_and_size_but_not_the_place(idx_folder, idx_images, tmp_path):
    first = opened(idx_folder).fingerprint(["train", "test"])
    assert opened(idx_folder).fingerprint(["train", "test"]) == first
    assert opened(idx_folder).fingerprint(["train[:50%]", "test"]) != first
    assert opened(idx_folder, image_size=(9, 9)).fingerprint(["train", "test"]) != first
    moved = idx_folder.rename(tmp_path / "elsewhere")
    assert opened(moved).fingerprint(["train", "test"]) == first
    images, _ = idx_images["train"]
    images[600, 2, 2] ^= 1
    write_idx(next(moved.glob("train-images*")), images)
    assert opened(moved).fingerprint(["train", "test"]) != first


def test_splits_of_different_shapes_are_refused(idx_folder):
    write_idx(next(idx_folder.glob("t10k-images*")), np.zeros((20, 6, 4), np.uint8))
    with pytest.raises(DamagedDataError, match="differ in shape"):
        opened(idx_folder)


def test_one_wrong_label_does_not_make_classes(idx_folder, idx_images):
    labels = idx_images["train"][1].copy()
    labels[[321, 400]] = 200
    path = next(idx_folder.glob("train-labels*"))
    write_idx(path, labels)
    labels = "the labels 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 200"
    with refused(DamagedDataError, path.name, labels, todo="label_names.txt"):
        opened(idx_folder)


def test_a_test_label_that_training_does_not_have_is_refused(idx_folder, idx_images):
    labels = idx_images["test"][1].copy()
    labels[[7, 9]] = 10
    path = next(idx_folder.glob("t10k-labels*"))
    write_idx(path, labels)
    with refused(DamagedDataError, path.name, "8, 9, 10"):
        opened(idx_folder)
    (idx_folder / "label_names.txt").write_text("\n".join("abcdefghijk"))
    assert _read_all(opened(idx_folder), "test")[1][7] == 10


def test_fashion_mnist_as_debian_ships_it():
    folder = Path("/usr/share/datasets/fashion-mnist")
    if not folder.is_dir():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    source = opened(folder)
    source.prepare()
    assert split_sizes(source) == {"train": 60_000, "test": 10_000}
    images, labels = _read_all(source, "test")
    assert images.shape == (10_000, 28, 28, 1)
    assert np.bincount(labels).tolist() == [1_000] * 10


def test_module_imports_no_tensorflow():
    code = (
        "import sys; from tfx_estimator.data.sources import open_source; "
        "from tfx_estimator.pipeline.config.data import DataSection; "
        "import tfx_estimator.data.sources.idx; sys.exit('tensorflow' in sys.modules)"
    )
    assert run_python("-c", code).returncode == 0
