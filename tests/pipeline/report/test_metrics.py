"""The Evaluator's metrics as a report shows them."""

from __future__ import annotations

from tfx_estimator.pipeline.experiments.side_by_side import results
from tfx_estimator.pipeline.report.metrics import format_metrics, metric_name, slice_name, slice_order, slice_tables
from tfx_estimator.pipeline.report.source import Run

NAMES = ("cat", "dog")
SUMMARY = {
    "state": "succeeded",
    "accuracy": 0.5,
    "label_names": NAMES,
    "metrics": {
        "sparse_categorical_accuracy": 0.5,
        "sparse_categorical_crossentropy": 1.5,
        "example_count": 10.0,
        "example_count_diff": 0.0,
        "auc": 0.75,
        "auc_diff": -0.125,
        "classId:1/precision": None,
    },
    "slice_metrics": {
        "ink x label": {
            "much x 1": {"auc": 0.5, "example_count": 3.0, "sparse_categorical_accuracy": 1.0, "auc_diff": 0.0},
            "little x 0": {"auc": 0.25, "example_count": 7.0, "sparse_categorical_accuracy": 0.0, "auc_diff": 0.0},
        },
    },
}


def test_metrics_of_a_class_and_slices_are_named():
    assert metric_name("classId:1/precision", NAMES) == "precision of dog"
    assert metric_name("classId:7/precision", NAMES) == "precision of 7"
    assert metric_name("topK:2/recall", NAMES) == "recall at top 2"
    assert metric_name("head/auc", NAMES) == "head/auc"
    assert slice_name("label x ink", "1 x much", NAMES) == "dog x much"
    assert slice_name("size", "1", NAMES) == "1"


def test_values_of_a_feature_that_are_numbers_are_sorted_as_such():
    assert sorted(["10", "9", "b", "²", "①", "a"], key=slice_order) == ["9", "10", "a", "b", "²", "①"]


def test_declared_metrics_are_shown_with_their_differences():
    assert format_metrics(SUMMARY["metrics"], NAMES) == [("auc", "0.7500", "-0.1250"), ("precision of dog", "nan", "")]
    assert format_metrics({}, ()) == slice_tables({}) == []


def test_slices_are_tables_with_count_and_accuracy_first():
    (table,) = slice_tables(SUMMARY)
    assert (table.feature, table.columns) == ("ink x label", ["example_count", "accuracy", "auc"])
    assert table.rows == [("little x cat", ["7", "0.0000", "0.2500"]), ("much x dog", ["3", "1.0000", "0.5000"])]
    assert table.left_out == (0, 0)


def test_metrics_of_several_runs_are_in_columns(tmp_path):
    runs = [Run(str(tmp_path), "", SUMMARY), Run(str(tmp_path), "", {"accuracy": 0.5})]
    rows = dict(results(runs))
    assert rows["auc"] == ["0.7500", "—"]
    assert list(rows).index("auc") > list(rows).index("accuracy")
