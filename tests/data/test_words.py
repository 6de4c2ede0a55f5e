"""The words of all columns, numbered by one analyzer."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam

from tfx_estimator.data import words

MOST = 40
COLUMNS = ("shop", "total €", "total $", "empty")


@pytest.fixture
def rows() -> list[dict[str, bytes]]:
    generator = np.random.default_rng(0)
    rows = [
        {name: b"" if name == "empty" or generator.random() < 0.1 else b"%d" % generator.exponential(50)}
        for _ in range(3_000)
        for name in COLUMNS
    ]
    made = [
        {key: value for row in rows[start : start + 4] for key, value in row.items()} for start in range(0, 12_000, 4)
    ]
    # A vocabulary has a word a line, of any bytes.
    for number, word in enumerate((b"two\nlines", b"\xff\xfe", b"a\r", b"\0")):
        for row in made[number::50]:
            row["shop"] = word
    return made


def _transformed(rows, preprocessing_fn, folder):
    """Returns the transformed rows, and the vocabularies in the order of the columns."""
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in COLUMNS}
    with tft_beam.Context(temp_dir=f"{folder}/temporary", desired_batch_size=100):
        data = rows, tft.DatasetMetadata.from_feature_spec(spec)
        (made, _), graph = data | tft_beam.AnalyzeAndTransformDataset(preprocessing_fn)
        _ = graph | tft_beam.WriteTransformFn(f"{folder}/graph")
    output = tft.TFTransformOutput(f"{folder}/graph")
    with open(f"{folder}/graph/transformed_metadata/{output.ASSET_MAP}") as file:
        names = list(json.load(file))
    domains = {each.name: each.int_domain for each in output.transformed_metadata.schema.feature}
    return made, [output.vocabulary_by_name(name) for name in names], domains


@pytest.mark.long
def test_the_places_are_those_of_transforms_own_vocabularies(rows, tmp_path, monkeypatch):
    # Counted in many parts.
    monkeypatch.setattr(words, "_HELD", 150)

    def theirs(columns):
        return {
            name: tft.compute_and_apply_vocabulary(columns[name], top_k=MOST, num_oov_buckets=1) for name in COLUMNS
        }

    made, found, domains = _transformed(rows, lambda columns: words.numbered(columns, MOST), tmp_path / "ours")
    expected, vocabularies, others = _transformed(rows, theirs, tmp_path / "theirs")
    assert made == expected
    by_size = sorted(map(len, vocabularies))
    assert sorted(map(len, found)) == by_size == [1, MOST, MOST, MOST]
    assert {tuple(each) for each in found if len(each) > 1} == {tuple(each) for each in vocabularies if len(each) > 1}
    assert domains == others
    assert {row["empty"] for row in made} == {1}
