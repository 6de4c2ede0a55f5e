"""Frozen analyzers: a later day is transformed by an earlier day's graph, whose vocabularies grow at their ends."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_transform as tft

from tests.artifacts import artifact, example, outputs, write_records
from tests.refusals import refused
from tfx_estimator import testing
from tfx_estimator.components.trainer.vocabularies import read_vocabularies
from tfx_estimator.components.transform import Transform
from tfx_estimator.components.transform.frozen import Frozen
from tfx_estimator.data.table_preprocessing import categories_of
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.config.task import BINARY, Task

pytestmark = pytest.mark.timeout(600)

_OWN = """
import tensorflow_transform as tft


def preprocessing_fn(inputs, custom_config):
    return {
        "number": tft.scale_to_0_1(inputs["number"]),
        "bucket": tft.bucketize(inputs["number"], 3),
        "word": tft.compute_and_apply_vocabulary(inputs["word"], top_k=3, num_oov_buckets=2, vocab_filename="words"),
        "answer": tft.compute_and_apply_vocabulary(inputs["answer"], vocab_filename="answers"),
    }
"""
_BY_SCHEMA = "tfx_estimator.data.table_preprocessing.preprocessing_fn"


class Days:
    """Runs Transform a day at a time."""

    def __init__(self, folder: Path, function: str, label: str) -> None:
        self.folder, self.function, self.label = folder, function, label

    def run(self, day: int, words: str, start: float, frozen: str = "", most: int = 0) -> str:
        """Transforms rows with these words, a letter each, and growing numbers; returns the graph."""
        folder = self.folder / f"day-{day}"
        rows = [
            {"number": float(start + place), "word": word.encode(), "answer": b"ny"[place % 2 : place % 2 + 1]}
            for place, word in enumerate(words)
        ]
        examples = []
        # Of a window, an artifact each.
        for number, part in enumerate((rows[:2], rows[2:])):
            split = folder / str(number) / "Split-train"
            split.mkdir(parents=True)
            write_records(split / "data_tfrecord-00000-of-00001", [example(**row) for row in part])
            examples.append(artifact("Examples", split.parent))
            examples[-1].split_names = '["train"]'
        config: dict[str, Any] = dataclasses.asdict(Task(BINARY, "answer", ("n", "y")))
        if frozen:
            config["frozen"] = dataclasses.asdict(Frozen(frozen, self.label, most))
        made = outputs(folder, transform_graph="TransformGraph", transformed_examples="Examples")
        properties = {
            "preprocessing_fn": self.function,
            "custom_config": json.dumps(config),
            "disable_statistics": 1,
        }
        inputs = {"examples": examples, "schema": [testing.artifact("Schema", rows[:1])]}
        Transform.EXECUTOR_SPEC.executor_class().Do(inputs, made, properties)
        return str(made["transform_graph"][0].uri)


def _transformed(graph: str, **columns: Sequence[Any]) -> dict[str, list[Any]]:
    layer = tft.TFTransformOutput(graph).transform_features_layer()
    made = layer({name: tf.constant(values)[:, tf.newaxis] for name, values in columns.items()})
    return {name: values.numpy().ravel().tolist() for name, values in made.items()}


def _materialised(graph: str, name: str) -> list[Any]:
    paths = sorted((Path(graph).parent / "transformed_examples").rglob("*.gz"))
    records = tf.data.TFRecordDataset([*map(str, paths)], "GZIP").as_numpy_iterator()
    features = (tf.train.Example.FromString(record).features.feature[name] for record in records)
    return [each.int64_list.value[0] for each in features]


def _categories(graph: str) -> dict[str, int]:
    return categories_of(tft.TFTransformOutput(graph).transformed_metadata.schema)


def test_by_schema_keeps_means_and_numbers_and_new_words_come_at_the_end(tmp_path):
    days = Days(tmp_path, _BY_SCHEMA, "answer")
    first = days.run(1, "aaabbc", 0)
    # Other frequencies, other numbers, two new words, and one of the first day is not there.
    second = days.run(2, "ccccddae", 100, frozen=first, most=5)
    asked = {"number": [0.5, 100.25], "word": [b"a", b"b"], "answer": [b"n", b"y"]}
    assert _transformed(second, **asked) == _transformed(first, **asked)
    assert read_vocabularies(first)["word"].words == (b"a", b"b", b"c")
    assert read_vocabularies(second)["word"].words == (b"a", b"b", b"c", b"d", b"e")
    assert _materialised(second, "word") == [2, 2, 2, 2, 3, 3, 0, 4]
    assert (_categories(first)["word"], _categories(second)["word"]) == (4, 6)
    # Full: of the third day's new words none, and what is unknown keeps its place.
    third = days.run(3, "zzzzdd", 7, frozen=second, most=5)
    assert read_vocabularies(third)["word"].words == (b"a", b"b", b"c", b"d", b"e")
    assert _materialised(third, "word") == [5, 5, 5, 5, 3, 3]
    assert _transformed(third, **asked) == _transformed(first, **asked)

    schema = tft.TFTransformOutput(third).raw_metadata.schema
    Frozen(third, "answer").check(schema)
    schema.feature[0].name = "renamed"
    with refused(DataError, "frozen", "renamed", todo="transform.analyzers=null"):
        Frozen(third, "answer").check(schema)


@pytest.mark.long
def test_a_preprocessing_fn_keeps_its_buckets_and_grows_as_far_as_its_own_vocabulary_would(importable, tmp_path):
    (importable / "own_words.py").write_text(_OWN)
    days = Days(tmp_path, "own_words.preprocessing_fn", "answer")
    first = days.run(1, "aaabba", 0)
    # Its top_k is 3: the second day's own vocabulary has c, d and one of e and a.
    second = days.run(2, "cccdddee", 100, frozen=first)
    asked = {"number": [0.5, 3.0, 100.0], "word": [b"a", b"b", b"a"], "answer": [b"n", b"y", b"n"]}
    assert _transformed(second, **asked) == _transformed(first, **asked)
    words = read_vocabularies(second)["word"].words
    assert words[:2] == (b"a", b"b")
    # As frequent as each other.
    assert words[2:] in ((b"c",), (b"d",))
    assert set(_materialised(second, "word")["cccddd".index(words[2].decode()) :][:3]) == {2}
    output = tft.TFTransformOutput(second)
    assert output.vocabulary_size_by_name("words") == len(output.vocabulary_by_name("words")) == 3
    assert (_categories(first)["word"], _categories(second)["word"]) == (4, 5)
    # A model has an output for each of these.
    assert output.vocabulary_by_name("answers") == tft.TFTransformOutput(first).vocabulary_by_name("answers")
