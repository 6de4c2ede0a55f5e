"""The shards that TfdsExampleGen writes, and the splits that it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.artifacts import artifact
from tests.refusals import refused
from tfx_estimator.components.tfds_example_gen import executor, properties
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError, DataNotFoundError, PipelineError
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.data import DataSection

_SPLITS = {"train": "train[:2000]", "eval": "test[:300]"}


def _run(folder: Path, data: DataSection) -> Any:
    examples = artifact("Examples", folder)
    context = executor.Executor.Context(beam_pipeline_args=BeamSection().pipeline_args(), tmp_dir=str(folder))
    executor.Executor(context).Do({}, {"examples": [examples]}, properties.to_properties(data, "the fingerprint"))
    return examples


def _mnist(real_data_dir: str, **changes) -> DataSection:
    return DataSection(**{"dataset": "mnist", "data_dir": real_data_dir, "splits": _SPLITS, "shards": 3, **changes})


@pytest.fixture(scope="module")
def written(real_data_dir, tmp_path_factory):
    """An Examples artifact with part of MNIST in three shards."""
    return _run(tmp_path_factory.mktemp("examples"), _mnist(real_data_dir))


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _examples(folder: Path) -> list[tuple[bytes, int]]:
    files = sorted(map(str, folder.iterdir()))
    pairs = []
    for record in tf.data.TFRecordDataset(files).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        assert sorted(features) == ["image", "label"]
        (image,), (label,) = features["image"].bytes_list.value, features["label"].int64_list.value
        pairs.append((image, label))
    return pairs


def test_the_shards_hold_every_example_of_mnist_once_with_tfdss_own_pixels(real_data_dir, written):
    for split, folder in (("train[:2000]", "Split-train"), ("test[:300]", "Split-eval")):
        expected = tfds.load("mnist", split=split, data_dir=real_data_dir, download=False, as_supervised=True)
        assert _examples(Path(written.uri) / folder) == [
            (image.tobytes(), label) for image, label in tfds.as_numpy(expected)
        ]


def test_files_and_properties(written):
    assert sorted(_digests(Path(written.uri))) == [
        f"Split-{split}/data_tfrecord-{index:05d}-of-00003" for split in ("eval", "train") for index in range(3)
    ]
    assert json.loads(written.split_names) == ["train", "eval"]
    text = written.get_string_custom_property
    assert (text("dataset"), text("version"), text("fingerprint")) == ("mnist", "3.0.1", "the fingerprint")
    assert text("payload_format") == "FORMAT_TF_EXAMPLE"
    assert "lecun2010mnist" in text("citation")
    assert properties.image_shape(written) == (28, 28, 1)
    assert properties.label_names(written) == tuple("0123456789")
    assert written.get_int_custom_property("num_examples_train") == 2000
    assert written.get_int_custom_property("num_examples_eval") == 300


def test_a_third_split_is_written_next_to_the_others(real_data_dir, tmp_path, written):
    splits = {"train": "train[:2000]", "eval": "train[2000:2100]", "test": "test[:300]"}
    examples = _run(tmp_path, _mnist(real_data_dir, splits=splits))
    assert json.loads(examples.split_names) == ["train", "eval", "test"]
    assert examples.get_int_custom_property("num_examples_test") == 300
    assert examples.get_string_custom_property("test") == "test[:300]"
    assert _examples(tmp_path / "Split-train") == _examples(Path(written.uri) / "Split-train")
    assert _examples(tmp_path / "Split-test") == _examples(Path(written.uri) / "Split-eval")


def test_the_same_input_gives_the_same_bytes(real_data_dir, tmp_path, written):
    _run(tmp_path, _mnist(real_data_dir))
    assert _digests(tmp_path) == _digests(Path(written.uri))


def test_the_number_of_shards_changes_the_files_and_not_the_examples(real_data_dir, tmp_path, written):
    _run(tmp_path, _mnist(real_data_dir, shards=7))
    assert len(list((tmp_path / "Split-train").iterdir())) == 7
    assert _examples(tmp_path / "Split-train") == _examples(Path(written.uri) / "Split-train")


@pytest.mark.parametrize(("shards", "train"), [(None, 8), (5, 5)])
def test_a_split_of_few_examples_has_a_file_for_each(real_data_dir, tmp_path, shards, train):
    _run(tmp_path, _mnist(real_data_dir, shards=shards, splits={"train": "train[:20]", "eval": "test[:4]"}))
    for split, files, examples in (("train", train, 20), ("eval", 4, 4)):
        assert len(list((tmp_path / f"Split-{split}").iterdir())) == files
        assert len(_examples(tmp_path / f"Split-{split}")) == examples


@pytest.mark.parametrize(
    ("splits", "shards", "error", "text"),
    [
        ({"eval": "validation"}, 3, DataNotFoundError, "Unknown split 'validation'"),
        ({"train": "train[:0]"}, 1, DataNotFoundError, "holds no examples"),
        ({"eval": "train[1900:2100]"}, 3, DataError, "both hold train[1900:2000], 100 examples"),
        ({"test": "test[299:]"}, 3, DataError, "eval: 'test[:300]' and test: 'test[299:]'"),
    ],
)
def test_invalid_splits_are_refused(real_data_dir, tmp_path, splits, shards, error, text):
    with refused(error, text):
        _run(tmp_path / "examples", _mnist(real_data_dir, splits={**_SPLITS, **splits}, shards=shards))
    assert _digests(tmp_path) == {}


def _cifar_folder(folder: Path, labels: list[int]) -> Path:
    folder.mkdir()
    for name in ("data_batch_1.bin", "test_batch.bin"):
        records = np.zeros((len(labels), 3073), np.uint8)
        records[:, 0] = labels
        (folder / name).write_bytes(records.tobytes())
    return folder


def test_an_error_in_a_worker_keeps_its_type_and_leaves_no_file(tmp_path):
    folder = _cifar_folder(tmp_path / "cifar", [1, 2, 3, 4, 99, 5])
    with pytest.raises(DamagedDataError, match=r"data_batch_1\.bin: example 4 has the label 99") as caught:
        _run(tmp_path / "examples", DataSection(dataset=str(folder), shards=2))
    assert caught.value.todo
    assert list((tmp_path / "examples").iterdir()) == []


def test_files_of_an_earlier_execution_are_not_read(tmp_path):
    folder = _cifar_folder(tmp_path / "cifar", [1, 2, 3])
    splits = {"train": "train", "eval": "test[:2]", "test": "test[2:]"}
    _run(tmp_path / "examples", DataSection(dataset=str(folder), shards=1, splits=splits))
    examples = _run(tmp_path / "examples", DataSection(dataset=str(folder), shards=2))
    assert len(json.loads(examples.get_string_custom_property("files"))) == 4
    assert [label for _, label in _examples(tmp_path / "examples" / "Split-train")] == [1, 2, 3]
    assert sorted(path.name for path in (tmp_path / "examples").iterdir()) == ["Split-eval", "Split-train"]


def test_a_runner_that_loses_shards_is_an_error(tmp_path, monkeypatch):
    folder = _cifar_folder(tmp_path / "cifar", [1, 2, 3])
    # As Dask's runner did: it lost elements without an error.
    create = beam.Create
    monkeypatch.setattr(executor.beam, "Create", lambda shards: create(shards[1:]))
    with pytest.raises(PipelineError, match="did not write 1 files"):
        _run(tmp_path / "examples", DataSection(dataset=str(folder), shards=3))
    assert _digests(tmp_path / "examples") == {}
