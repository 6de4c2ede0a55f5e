"""The rows of a table that a run predicts."""

from __future__ import annotations

import dataclasses
import json

from tfx_estimator import testing
from tfx_estimator.data.table_preprocessing import preprocessing_fn
from tfx_estimator.pipeline.config.task import BINARY, COMPARABLE, REGRESSION, Task
from tfx_estimator.pipeline.report.artifacts import Output
from tfx_estimator.pipeline.report.examples import open_data

ROWS = [
    {"age": 30.5, "town": "a", "grade": "good"},
    {"age": 40.0, "town": "b", "grade": None},
    {"age": None, "town": "ü" * 60, "grade": "bad"},
]


def _outputs(task: Task, preprocessing):
    graph = testing.artifact("TransformGraph", (preprocessing, ROWS, None, dataclasses.asdict(task)))
    comparable = json.dumps({"data": [dataclasses.asdict(task)], "outputs": []})
    examples = testing.examples(ROWS, splits=("eval",))
    return {
        ("CsvExampleGen", "examples"): Output(examples.uri, {"split_names": json.dumps(["eval"])}),
        ("Trainer", "model"): Output(examples.uri, {COMPARABLE: comparable}),
        ("Transform", "transform_graph"): Output(graph.uri, {}),
    }


def test_labels_are_those_of_the_preprocessing_and_rows_are_shown_by_their_cells():
    data = open_data(_outputs(Task(BINARY, "grade", ("bad", "good"), preprocessed=True), preprocessing_fn))
    assert (data.names, data.is_binary, data.shape) == (["bad", "good"], True, ())
    ((serialized, contents, labels),) = data.batches("eval", -1)
    # The row without a label is left out.
    assert labels.tolist() == [1, 0]
    assert serialized.tolist() == contents.tolist()
    assert [data.show(each) for each in contents] == [
        [("age", "30.5"), ("town", "a")],
        [("town", "ü" * 39 + "…")],
    ]


def test_classes_that_only_transform_knows_are_numbered():
    import tensorflow_transform as tft

    def own(inputs):
        return {"grade": tft.compute_and_apply_vocabulary(inputs["grade"], num_oov_buckets=1)}

    def without_unknown(inputs):
        return {"grade": tft.compute_and_apply_vocabulary(inputs["grade"])}

    # Unknown words have a class, of the model too, where they are numbered and where they are -1.
    for preprocessing in (own, without_unknown):
        assert open_data(_outputs(Task("classes", "grade", preprocessed=True), preprocessing)).names == ["0", "1", "2"]


def test_a_regression_s_labels_are_numbers_and_a_row_without_one_is_left_out():
    data = open_data(_outputs(Task(REGRESSION, "age", preprocessed=True), preprocessing_fn))
    assert (data.names, data.is_regression, data.name_of(30.5)) == ([], True, "30.5")
    ((_, contents, labels),) = data.batches("eval", -1)
    assert labels.tolist() == [30.5, 40.0]
    assert data.show(contents[0]) == [("grade", "good"), ("town", "a")]
