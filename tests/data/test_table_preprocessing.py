"""The built-in preprocessing_fn of tables."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tfx_estimator import testing
from tfx_estimator.data.table_preprocessing import preprocessing_fn, raw
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION, Task

ROWS = [
    {"age": 30, "town": "a", "weight": 2.0, "grade": "good"},
    {"age": 40, "town": "b", "weight": None, "grade": "bad"},
    {"age": None, "town": None, "weight": 0.5, "grade": "good"},
    {"age": 50, "town": "a", "weight": 1.0, "grade": "best"},
]


def test_each_column_by_its_type():
    task = Task(CLASSES, "grade", ("bad", "best", "good"), "weight", True)
    found = testing.preprocess(preprocessing_fn, ROWS, label="grade", custom_config=dataclasses.asdict(task))
    spread = np.sqrt(200 / 3)
    np.testing.assert_allclose(found["age"], [-10 / spread, 0, 0, 10 / spread], atol=1e-6)
    # The most frequent word is the first; a missing one shares the last place.
    np.testing.assert_array_equal(found["town"], [0, 1, 2, 0])
    np.testing.assert_array_equal(found["grade"], [2, 0, 2, 1])
    np.testing.assert_array_equal(found["weight"], np.array([2, 1, 0.5, 1], np.float32))


def test_so_many_words_are_numbered_as_declared():
    task = dataclasses.asdict(Task(CLASSES, "grade", ("bad", "best", "good"), preprocessed=True))
    for top_k, places in {1: [0, 1, 1, 0], 2: [0, 1, 2, 0]}.items():
        config = {**task, "top_k": top_k}
        found = testing.preprocess(preprocessing_fn, ROWS, label="grade", custom_config=config)
        np.testing.assert_array_equal(found["town"], places)


def test_raw_columns_are_as_they_are_beside_the_label_and_the_weight():
    task = dataclasses.asdict(Task(CLASSES, "grade", ("bad", "best", "good"), "weight", True))
    found = testing.preprocess(raw, ROWS, label="grade", custom_config=task)
    assert found["age"] == [30, 40, 0, 50]
    assert found["town"] == [b"a", b"b", b"", b"a"]
    assert found["age"][0].dtype == np.int64
    prepared = testing.preprocess(preprocessing_fn, ROWS, label="grade", custom_config=task)
    for name in ("grade", "weight"):
        np.testing.assert_array_equal(found[name], prepared[name])


def test_labels_by_the_task():
    def labels(values: list, task: Task) -> list:
        return preprocessing_fn({"y": tf.constant(values)}, dataclasses.asdict(task))["y"].numpy().tolist()

    assert labels([[3], [1]], Task(CLASSES, "y", ("1", "3"))) == [1, 0]
    assert labels([0.0, 2.0], Task(CLASSES, "y", ("0", "1", "2"))) == [0, 2]
    assert labels([17_031_081_401, -1], Task(BINARY, "y", ("-1", "17031081401"))) == [1, 0]
    assert labels([0, 1], Task(BINARY, "y")) == [0, 1]
    # Neither an unknown class nor a row without a label becomes a class.
    assert labels([3, 7], Task(CLASSES, "y", ("1", "3"))) == [1, -1]
    absent = {"y": tf.sparse.from_dense([[5], [0]])}
    found = [preprocessing_fn(absent, dataclasses.asdict(Task(kind, "y")))["y"] for kind in (CLASSES, REGRESSION)]
    np.testing.assert_array_equal(found, [[5, -1], [5, np.nan]])
    assert labels([2.5, 1.0], Task(REGRESSION, "y")) == [2.5, 1.0]
