"""TfdsExampleGen in a pipeline: channels, cache key."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import pytest
from PIL import Image

from tfx_estimator.components.tfds_example_gen import TfdsExampleGen
from tfx_estimator.data.sources import open_source
from tfx_estimator.pipeline.base.errors import DataError, DeclarationError
from tfx_estimator.pipeline.config.data import DataSection


def _key(**changes):
    component = TfdsExampleGen(DataSection(**changes))
    return component.exec_properties["data"], component.exec_properties["fingerprint"]


def test_the_cache_key_follows_the_declaration_and_the_data(real_data_dir):
    first = _key(dataset="mnist", data_dir=real_data_dir)
    assert _key(dataset="mnist", data_dir=real_data_dir) == first
    data, fingerprint = _key(dataset="mnist", data_dir=real_data_dir, shards=4)
    assert data != first[0]
    assert fingerprint == first[1]
    _, fingerprint = _key(dataset="mnist", data_dir=real_data_dir, splits={"train": "train[:90%]"})
    assert fingerprint != first[1]


def test_evaluation_on_training_examples_is_refused_before_the_pipeline_starts(real_data_dir):
    with pytest.raises(DataError, match=r"both hold train\[54000:60000\]"):
        _key(dataset="mnist", data_dir=real_data_dir, splits={"train": "train", "eval": "train[90%:]"})


def test_the_section_may_be_a_mapping(tmp_path, monkeypatch):
    section = {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}, "shards": 2}
    given, typed = TfdsExampleGen(section), TfdsExampleGen(DataSection(**section))
    assert given.exec_properties == typed.exec_properties
    assert TfdsExampleGen(MappingProxyType(section)).exec_properties == typed.exec_properties
    monkeypatch.chdir(tmp_path)
    (tmp_path / "emnist" / "own").mkdir(parents=True)
    for dataset, place in (
        ("./pets", str(tmp_path / "pets")),
        ("pets/by/class", str(tmp_path / "pets/by/class")),
        ("emnist/letters:3.1.0", "emnist/letters:3.1.0"),
        ("emnist/own", str(tmp_path / "emnist/own")),
    ):
        found = TfdsExampleGen({"dataset": dataset, "data_dir": "~/tfds"}, fingerprint="known elsewhere")
        location = json.loads(found.exec_properties["location"])
        assert (location["dataset"], location["data_dir"]) == (place, str(Path.home() / "tfds"))


@pytest.mark.parametrize(
    ("given", "message", "todo"),
    [
        ("mnist", "TfdsExampleGen(data=…) is 'mnist'", 'TfdsExampleGen({"dataset": …})'),
        ({}, "data.dataset\n", 'add "dataset"'),
        ({"datset": "mnist"}, "unknown key `datset`", "did you mean `dataset`?"),
        ({"dataset": "digits", "shards": "8"}, "a str is no number", "give a number"),
        ({"dataset": "digits", "splits": "train"}, "a str is no dict", "give a dict"),
        ({"dataset": "digits", "download": "no"}, "neither True nor False", "write True or False"),
        ({"dataset": object()}, "data=…): dataset is an object, builtins.object", "give the data set's name"),
        ({"dataset": "$DATA/pets"}, "data.dataset: $DATA/pets", "expanded only in braces"),
    ],
)
def test_a_wrong_section_is_refused_in_terms_of_python(given, message, todo):
    with pytest.raises(DeclarationError) as refused:
        TfdsExampleGen(given)
    text = str(refused.value)
    assert message in text
    assert todo in text
    for words in ("--set", "YAML", "the line", "indented"):
        assert words not in text


def test_equal_images_in_training_and_evaluation_are_warned_of(tmp_path, caplog):
    for number in range(20):
        for name in ("a", "b"):
            path = tmp_path / "pets" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            # Two of each.
            Image.new("L", (4, 4), number // 2 + 50 * (name == "b")).save(path)
    with caplog.at_level("WARNING"):
        TfdsExampleGen({"dataset": str(tmp_path / "pets"), "splits": {"train": "train[:50%]", "eval": "train[50%:]"}})
    (warned,) = (record.getMessage() for record in caplog.records if "byte for byte" in record.getMessage())
    start, _, rest = warned.partition(": ")
    assert start == "of the 20 images of train[50%:] also in train[:50%], byte for byte"
    count = rest.partition(",")[0]
    first, second = ([image.tobytes() for image in part] for part in _halves(str(tmp_path / "pets")))
    assert int(count) == sum(image in first for image in second) > 0


def _halves(dataset):
    source = open_source(DataSection(dataset=dataset))
    for expression in ("train[:50%]", "train[50%:]"):
        yield [image for part in source.resolve(expression) for image, _ in source.read(part)]
