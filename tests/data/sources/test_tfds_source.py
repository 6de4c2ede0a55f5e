"""TFDS data sets: real ones, a user's own, and damaged ones."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
import yaml
from PIL import Image
from tensorflow_datasets.core import registered

from tests.artifacts import write_records
from tests.data.sizes import opened, read_all, split_sizes
from tests.folders import write_files
from tests.refusals import refused
from tfx_estimator.__main__ import main
from tfx_estimator.data.sources import ExampleRange, files
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError

_SIZES = '{"image": tfds.features.Image(shape=(None, None, 3)), "label": tfds.features.ClassLabel(num_classes=3)}'


def _prepared(dataset, data_dir, **changes):
    source = opened(dataset, data_dir=str(data_dir), **changes)
    source.prepare()
    return source


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_pixels_and_labels_equal_those_of_tfds_itself(real_data_dir, name):
    source = opened(name, data_dir=real_data_dir)
    (part,) = source.resolve("train[1000:1600]")
    expected = tfds.load(name, split="train[1000:1600]", data_dir=real_data_dir, download=False, as_supervised=True)
    assert len(part) == 600
    for (image, label), theirs in zip(source.read(part), expected.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(image, theirs[0])
        assert label == theirs[1]


def test_a_users_own_builder_class(make_builder, data_dir):
    source = _prepared(make_builder(), data_dir)
    assert (source.info.image_shape, source.info.label_names) == ((4, 6, 3), ("a", "b", "c"))
    assert (source.info.licence, source.info.citation) == ("CC0", "@misc{tiny}")
    assert split_sizes(source) == {"train": 12, "test": 5}
    pairs = [pair for part in source.resolve("train+test") for pair in source.read(part)]
    assert sorted(int(image[0, 0, 0]) for image, _ in pairs) == list(range(17))
    assert all((image == image[0, 0, 0]).all() and label == image[0, 0, 0] % 3 for image, label in pairs)


def test_the_only_image_and_the_only_class_are_found_without_supervised_keys(make_builder, data_dir):
    features = (
        '{"picture": tfds.features.Image(shape=(2, 2, 1)), "kind": tfds.features.ClassLabel(num_classes=17), '
        '"name": tfds.features.Text()}'
    )
    example = '{"picture": np.full((2, 2, 1), i, np.uint8), "kind": i, "name": "x"}'
    source = _prepared(make_builder(keys="None", features=features, example=example), data_dir)
    found = sorted((int(image[0, 0, 0]), label) for image, label in read_all(source, "test"))
    assert found == [(i, i) for i in range(12, 17)]


def test_a_split_without_labels_is_unlabelled_not_damaged(make_builder, data_dir):
    example = '{"image": np.full((4, 6, 3), i, np.uint8), "label": i % 3 if i < 12 else -1}'
    source = _prepared(make_builder(example=example), data_dir)
    assert len(read_all(source)) == 12
    with pytest.raises(DataError, match=r"the split 'test' of tiny\d+ is unlabelled") as caught:
        read_all(source, "test")
    assert not isinstance(caught.value, DamagedDataError)
    # Following the advice.
    splits = yaml.safe_load(caught.value.todo.partition(": ")[2])["splits"]
    again = opened(source.section.dataset, data_dir=str(data_dir), splits=splits)
    parts = [part for parts in again.resolve_disjoint().values() for part in parts]
    assert sorted(label for part in parts for _, label in again.read(part)) == [0] * 4 + [1] * 4 + [2] * 4


def test_the_verb_data_names_a_split_without_labels_and_suggests_others(make_builder, data_dir, tmp_path, capsys):
    dataset = make_builder(example='{"image": np.full((4, 6, 3), i, np.uint8), "label": i % 3 if i < 12 else -1}')
    text = yaml.safe_dump({"dataset": dataset, "data_dir": str(data_dir), "splits": {"train": "train", "eval": "test"}})
    write_files(tmp_path, {"mine.yaml": f"name: mine\ndata:\n{textwrap.indent(text, '  ')}"})

    def shown(source):
        assert main(["data", str(source)]) == 0
        output = capsys.readouterr().out
        return output, yaml.safe_load(output[output.index("data:\n") :])["data"]

    output, section = shown(tmp_path / "mine.yaml")
    assert "3 classes: a, b, c; not prepared\n" in output
    assert section["splits"] == {"train": "train", "eval": "test"}
    opened(dataset, data_dir=str(data_dir)).prepare()
    for source in (tmp_path / "mine.yaml", next(data_dir.glob("tiny*"))):
        output, section = shown(source)
        assert "  note: the split 'test' of tiny" in output
        assert section["splits"] == {"train": "train[:90%]", "eval": "train[90%:]"}
        suggested = opened(**section)
        parts = [part for parts in suggested.resolve_disjoint().values() for part in parts]
        assert len([label for part in parts for _, label in suggested.read(part)]) == 12


def test_declared_channels_of_colours_and_of_grey(make_builder, data_dir):
    dataset = make_builder(example='{"image": np.full((4, 6, 3), (255, 0, i), np.uint8), "label": i % 3}')
    source = _prepared(dataset, data_dir, channels=1)
    assert source.info.image_shape == (4, 6, 1)
    with Image.new("RGB", (1, 1), (255, 0, 11)) as red:
        last = red.convert("L").getpixel((0, 0))
    assert max(int(image.max()) for image, _ in read_all(source)) == last
    grey = make_builder(
        features='{"image": tfds.features.Image(shape=(2, 2, 1)), "label": tfds.features.ClassLabel(num_classes=3)}',
        example='{"image": np.full((2, 2, 1), i, np.uint8), "label": i % 3}',
    )
    source = _prepared(grey, data_dir, channels=3)
    assert source.info.image_shape == (2, 2, 3)
    pixels = sorted(image.tolist() for image, _ in read_all(source))
    assert pixels == [np.full((2, 2, 3), number).tolist() for number in range(12)]


def test_images_of_many_sizes_need_image_size(make_builder, data_dir):
    dataset = make_builder(
        features=_SIZES, example='{"image": np.full((5 + i, 9, 3), 7 * i, np.uint8), "label": i % 3}'
    )
    with refused(DataError, "differ in size", todo="data.image_size"):
        _ = opened(dataset, data_dir=str(data_dir)).info
    source = _prepared(dataset, data_dir, image_size=(8, 8))
    assert source.info.image_shape == (8, 8, 3)
    pairs = read_all(source)
    assert {image.shape for image, _ in pairs} == {(8, 8, 3)}
    # A flat image stays the same, to the last bit.
    assert sorted(image.max() for image, _ in pairs) == [7 * i for i in range(12)]
    assert all(image.min() == image.max() for image, _ in pairs)


def test_shrinking_is_antialiased(make_builder, data_dir):
    stripes = '{"image": np.tile(np.array([0, 255], np.uint8)[None, :, None], (16, 8, 3)), "label": 0}'
    source = _prepared(make_builder(features=_SIZES, example=stripes), data_dir, image_size=(4, 4))
    image, _ = next(source.read(ExampleRange("train", 0, 1)))
    assert image.dtype == np.uint8
    assert 90 < image.min() <= image.max() < 165  # without, whole columns would be 0 or 255


def test_only_uint8_images(make_builder, data_dir):
    features = _SIZES.replace("(None, None, 3)", "(2, 2, 1), dtype=np.uint16")
    with pytest.raises(DataError, match="are uint16"):
        _ = opened(make_builder(features=features), data_dir=str(data_dir)).info


def test_the_fingerprint_follows_split_size_and_contents(make_builder, data_dir):
    dataset = make_builder()
    source = _prepared(dataset, data_dir)
    first = source.fingerprint(["train", "test"])
    assert opened(dataset, data_dir=str(data_dir)).fingerprint(["train", "test"]) == first
    assert source.fingerprint(["train[:50%]", "test"]) != first
    assert opened(dataset, data_dir=str(data_dir), image_size=(8, 8)).fingerprint(["train", "test"]) != first
    names = next(data_dir.glob("tiny*/1.0.0/label.labels.txt"))
    before = names.read_text()
    names.write_text(before.replace(before.split()[0], "renamed"))
    renamed = opened(dataset, data_dir=str(data_dir))
    assert renamed.fingerprint(["train", "test"]) != first
    names.write_text(before)
    file = next(data_dir.glob("tiny*/1.0.0/*train*"))
    data = bytearray(file.read_bytes())
    data[40] ^= 1
    file.write_bytes(data)
    assert source.fingerprint(["train", "test"]) != first


def test_the_fingerprint_of_a_large_data_set_is_of_sizes_and_times(make_builder, data_dir, monkeypatch):
    source = _prepared(make_builder(), data_dir)
    whole = source.fingerprint(["train"])
    monkeypatch.setattr(files, "CONTENT_LIMIT", 10)
    first = source.fingerprint(["train"])
    assert first not in (whole, source.fingerprint(["train[:5]"]))
    assert source.fingerprint(["train"]) == first
    file = next(data_dir.glob("tiny*/1.0.0/*train*"))
    file.write_bytes(file.read_bytes() + b"x")
    assert source.fingerprint(["train"]) != first


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"label": 3}, "has the label 3, of 3 classes"),
        ({"label": -2}, "has the label -2, of 3 classes"),
        ({"image": b"no image"}, "cannot be read"),
        ({"image": (9, 9, 3)}, "cannot be read"),
    ],
)
def test_an_error_names_a_wrong_example(make_builder, data_dir, change, text):
    source = _prepared(make_builder(), data_dir)
    file = next(data_dir.glob("tiny*/1.0.0/*train*"))
    records = list(tf.data.TFRecordDataset(str(file)).as_numpy_iterator())
    example = tf.train.Example.FromString(records[4])
    for name, value in change.items():
        if isinstance(value, int):
            example.features.feature[name].int64_list.value[0] = value
        else:
            png = value if isinstance(value, bytes) else tf.io.encode_png(np.zeros(value, np.uint8)).numpy()
            example.features.feature[name].bytes_list.value[0] = png
    write_records(file, [*records[:4], example.SerializeToString(), *records[5:]])
    with refused(DamagedDataError, file.name, text):
        read_all(source)


@pytest.fixture
def edit(monkeypatch):
    """Edits the module of a builder class, which is then imported again."""

    def change(dataset, before, after):
        name, _, class_name = dataset.partition(":")
        file = Path(sys.modules[name].__file__)
        file.write_text(file.read_text().replace(before, after))
        os.utime(file, (file.stat().st_mtime + 10,) * 2)  # otherwise its bytecode may seem up to date
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delitem(registered._DATASET_REGISTRY, class_name.lower())
        importlib.invalidate_caches()

    return change


def _colours(source):
    return sorted(int(image[0, 0, 0]) for image, _ in read_all(source))


def test_a_raised_version_is_prepared_and_read(make_builder, data_dir, edit):
    dataset = make_builder()
    first = _prepared(dataset, data_dir)
    assert _colours(first) == list(range(12))
    edit(dataset, '"1.0.0")', '"1.1.0")')
    source = opened(dataset, data_dir=str(data_dir))
    assert (source.info.version, source.is_prepared) == ("1.1.0", False)
    source.prepare()
    assert source.fingerprint(["train"]) != first.fingerprint(["train"])
    assert source.notes() == ()
    # The declaration has priority over the class.
    assert opened(dataset, data_dir=str(data_dir), version="1.0.0").info.version == "1.0.0"


def test_a_builder_that_was_edited_without_a_raised_version_is_noted(make_builder, data_dir, edit):
    dataset = make_builder()
    assert _prepared(dataset, data_dir).notes() == ()
    edit(dataset, "i, np.uint8)", "100 + i, np.uint8)")
    source = _prepared(dataset, data_dir)
    (note,) = source.notes()
    assert "was edited since its data were prepared" in note
    assert "raise VERSION" in note
    (folder,) = data_dir.glob("tiny*/1.0.0")
    assert str(folder) in note
    assert _colours(source) == list(range(12))
    shutil.rmtree(folder)
    source = _prepared(dataset, data_dir)
    assert source.notes() == ()
    assert _colours(source) == list(range(100, 112))
