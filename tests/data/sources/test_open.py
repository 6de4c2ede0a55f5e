"""Values of `data.dataset`."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.data.sizes import opened, split_sizes
from tests.data.sources.conftest import write_idx
from tests.refusals import refused
from tfx_estimator.data.sources import ExampleRange, tfds_lookup
from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError


def test_a_registered_name_is_known_before_it_is_prepared(data_dir):
    source = opened("fashion_mnist", data_dir=str(data_dir))
    assert source.info.name == "fashion_mnist"
    assert source.info.image_shape == (28, 28, 1)
    assert source.info.num_classes == 10
    assert list(data_dir.iterdir()) == []
    with pytest.raises(DataNotFoundError, match="is not prepared"):
        split_sizes(source)


def test_the_error_of_an_unknown_config_lists_the_known_ones(data_dir):
    with refused(DataNotFoundError, "no config 'lettres'", expected="letters"):
        opened("emnist/lettres", data_dir=str(data_dir))


@pytest.mark.parametrize("dataset", ["mnist:3.0.1", "mnist:3.*.*"])
def test_a_version_after_the_name(real_data_dir, dataset):
    assert opened(dataset, data_dir=real_data_dir).info.version == "3.0.1"
    with pytest.raises(DataNotFoundError, match=r"no version '1\.0\.0' of mnist"):
        opened("mnist:1.0.0", data_dir=real_data_dir)


def test_a_data_set_prepared_elsewhere_is_found_by_name_config_and_version(make_builder, data_dir):
    opened(make_builder(), data_dir=str(data_dir)).prepare()
    (prepared,) = data_dir.glob("tiny*/1.0.0")
    for config in ("small", "large.v2-x"):
        folder = data_dir / "own_set" / config / "1.0.0"
        folder.mkdir(parents=True)
        for file in prepared.iterdir():
            (folder / file.name.replace(prepared.parent.name, "own_set")).write_bytes(file.read_bytes())
        info = json.loads((folder / "dataset_info.json").read_text())
        (folder / "dataset_info.json").write_text(json.dumps({**info, "name": "own_set", "configName": config}))
    for dataset in ("own_set/large.v2-x", "own_set/large.v2-x:1.0.0"):
        source = opened(dataset, data_dir=str(data_dir))
        assert source.info.name == "own_set/large.v2-x"
        assert len(list(source.read(ExampleRange("train", 0, 12)))) == 12
    metadata = data_dir / "own_set" / ".config" / "metadata.json"
    metadata.parent.mkdir()
    metadata.write_text('{"default_config_name": "small"}')
    assert opened("own_set", data_dir=str(data_dir)).info.name == "own_set/small"


def test_an_existing_folder_has_priority_over_a_name_with_a_config(tmp_path, monkeypatch, idx_folder):
    monkeypatch.chdir(tmp_path)
    idx_folder.rename((tmp_path / "emnist").mkdir() or tmp_path / "emnist" / "letters")
    assert split_sizes(opened("emnist/letters"))["train"] == 700


@pytest.mark.parametrize("below", ["mnist", "mnist/3.0.1"])
def test_a_prepared_folder_needs_no_name(real_data_dir, below):
    source = opened(f"{real_data_dir}/{below}")
    assert (source.info.name, source.info.version) == ("mnist", "3.0.1")
    assert split_sizes(source) == {"train": 60_000, "test": 10_000}


def test_a_data_dir_with_several_data_sets_is_not_guessed(real_data_dir):
    with pytest.raises(DataNotFoundError, match="several prepared data sets: cifar10, mnist"):
        opened(real_data_dir)


def test_the_error_of_an_unknown_name_suggests_the_nearest(data_dir):
    with refused(DataNotFoundError, "'mnst'", str(data_dir), "did you mean mnist"):
        opened("mnst", data_dir=str(data_dir))


def test_a_store_that_does_not_answer(monkeypatch):
    def respond(folder):
        raise tf.errors.FailedPreconditionError(None, None, f"Error executing an HTTP request for {folder}")

    monkeypatch.setattr(tfds_lookup, "prepared_versions", respond)
    what = "mnist in gs://mine/tfds cannot be accessed: Error executing"
    with refused(DataError, what, todo="gcloud auth application-default login"):
        opened("mnist", data_dir="gs://mine/tfds")


@pytest.mark.parametrize("version", ["9.9.9", "nonsense"])
def test_the_error_of_an_unknown_version_lists_the_existing_ones(real_data_dir, version):
    for dataset, data_dir in (("mnist", real_data_dir), (f"{real_data_dir}/mnist", None)):
        with refused(DataNotFoundError, f"no version '{version}'", expected="3.0.1"):
            opened(dataset, data_dir=data_dir, version=version)


def test_the_newest_prepared_version_is_taken(make_builder, data_dir):
    dataset = make_builder()
    opened(dataset, data_dir=str(data_dir)).prepare()
    (prepared,) = data_dir.glob("tiny*/1.0.0")
    for version in ("1.0.9", "1.0.10"):
        folder = prepared.with_name(version)
        folder.mkdir()
        for file in prepared.iterdir():
            data = file.read_bytes().replace(b'"version": "1.0.0"', f'"version": "{version}"'.encode())
            (folder / file.name).write_bytes(data)
    folder = prepared.parent
    assert opened(folder).info.version == "1.0.10"
    assert opened(folder.name, data_dir=str(data_dir)).info.version == "1.0.10"
    assert opened(folder, version="1.0.9").info.version == "1.0.9"
    fingerprints = {opened(folder, version=version).fingerprint(["train"]) for version in ("1.0.0", "1.0.9", "1.0.10")}
    assert len(fingerprints) == 3
    # The class states its version.
    assert opened(dataset, data_dir=str(data_dir)).info.version == "1.0.0"
    assert opened(dataset, data_dir=str(data_dir), version="1.0.9").info.version == "1.0.9"


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        ("no_such_package.module:Builder", "cannot be imported"),
        ("tfx_estimator.pipeline.base.errors:NoSuchThing", "cannot be imported"),
        ("tfx_estimator.pipeline.base.errors:DataError", "is not a TFDS builder"),
    ],
)
def test_a_wrong_class_is_refused(dataset, text):
    with pytest.raises(DataNotFoundError, match=text):
        opened(dataset)


def test_the_error_of_a_missing_folder_lists_what_was_searched(tmp_path):
    with pytest.raises(DataNotFoundError, match="no folder"):
        opened(tmp_path / "nowhere")
    (tmp_path / "cats.txt").touch()
    with pytest.raises(DataNotFoundError, match=r"it holds cats\.txt") as caught:
        opened(tmp_path)
    for form in ("dataset_info.json", "train-images-idx3-ubyte", "data_batch_1.bin"):
        assert form in caught.value.expected


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        ("imdb_reviews", "text (Text), label (ClassLabel)"),
        ("coco", "not one of images with one class each"),
        ("cats_vs_dogs", "differ in size"),
    ],
)
def test_a_data_set_of_another_kind_is_refused(data_dir, dataset, text):
    with refused(DataError, text):
        _ = opened(dataset, data_dir=str(data_dir)).info


def test_one_class_of_any_source_is_refused_at_once(tmp_path, make_builder, data_dir):
    write_idx(tmp_path / "train-images-idx3-ubyte", np.zeros((6, 5, 4), np.uint8))
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.zeros(6, np.uint8))
    own = make_builder(
        features='{"image": tfds.features.Image(shape=(4, 6, 3)), "label": tfds.features.ClassLabel(num_classes=1)}',
        example='{"image": np.zeros((4, 6, 3), np.uint8), "label": 0}',
    )
    for dataset, changes in ((tmp_path, {}), (own, {"data_dir": str(data_dir)})):
        with pytest.raises(DataError, match="has one class only: 0"):
            _ = opened(dataset, **changes).info
