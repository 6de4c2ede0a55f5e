"""The columns of a table in a run's report, by the statistics of TFDV."""

from __future__ import annotations

import pytest

from tfx_estimator import testing
from tfx_estimator.pipeline.report.artifacts import Output
from tfx_estimator.pipeline.report.columns import describe_columns, is_of_table

ROWS = [
    {"age": float(age), "town": "Ulm" if age < 8 else "Bonn", "grade": None if age == 3 else age} for age in range(10)
]


def test_each_column_has_its_type_missing_cells_and_distribution():
    made = testing.artifact("ExampleStatistics", testing.examples(ROWS, splits=("train",)))
    outputs = {("StatisticsGen", "statistics"): Output(made.uri, {"split_names": made.split_names})}
    assert is_of_table(outputs)
    assert not is_of_table({**outputs, ("TfdsExampleGen", "examples"): Output(made.uri, {})})
    found = describe_columns(outputs)
    assert (found.rows, found.left_out) == ({"train": 10}, 0)
    columns = {each["name"]: (each["kind"], each["splits"]["train"]) for each in found.columns}
    assert {name: kind for name, (kind, _) in columns.items()} == {
        "age": "number",
        "grade": "whole number",
        "town": "words",
    }
    age, grade, town = (columns[name][1] for name in ("age", "grade", "town"))
    assert (age.missing, age.text, age.bars) == (0, "4.5 ± 2.872, 0 to 9", pytest.approx([1] * 10, abs=0.02))
    assert grade.missing == pytest.approx(0.1)
    assert (town.text, town.bars) == ("2 different: Ulm 80.0 %, Bonn 20.0 %", [1, 0.25])
    assert town.titles[1] == "Bonn: 20.0 %"
