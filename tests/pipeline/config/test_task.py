"""What a label's column shows of the task."""

from __future__ import annotations

import pytest

from tests.folders import write_files
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION, task_of
from tfx_estimator.pipeline.user_data.table import read_table

LABELS = {
    "words": (["no", "yes"], BINARY),
    "0 and 1": ([0, 1], BINARY),
    "-1 and 1": ([-1, 1], BINARY),
    "0.0 and 1.0": (["0.0", "1.0"], BINARY),
    "0, 1 and 1.0": (["0", "1", "1.0"], BINARY),
    "three words": (["a", "b", "c"], CLASSES),
    "digits": (range(10), CLASSES),
    "numbers from 1 on": (range(1, 8), CLASSES),
    "marks of wine": (range(3, 9), ""),
    "ages": (range(18, 90), REGRESSION),
    "many numbers from 0 on": (range(50), ""),
    "fractions": ([0.5, 1.5], REGRESSION),
    "texts": ([f"text {n}" for n in range(200)], ""),
    "one": ([3], ""),
    "none": ([""], ""),
}


@pytest.mark.parametrize(("values", "task"), LABELS.values(), ids=LABELS)
def test_the_task_of_a_label(tmp_path, values, task):
    cells = [str(values[n % len(values)]) for n in range(200)]
    write_files(tmp_path, {"a.csv": "\n".join(["x,y", *(f"{n},{cell}" for n, cell in enumerate(cells))])})
    assert task_of(read_table(str(tmp_path)).column("y")) == task
