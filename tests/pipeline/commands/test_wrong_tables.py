"""Wrong tables by `run`: the error with file, column and row, its exit code, and nothing half-written."""

from __future__ import annotations

import pytest

from tests.folders import write_files
from tests.pipeline.user_data.test_table import REFUSED, REFUSED_SPLITS, SPLITS
from tfx_estimator.__main__ import main

# A preprocessing_fn might make the label.
_OF_ALL = {**REFUSED, "a label that is not there": ({"a.csv": "x,c\n1,a\n2,b\n"}, "there is no column `y`")}


@pytest.mark.parametrize(
    ("files", "what", "splits"),
    [
        *((files, what, {}) for files, *what in _OF_ALL.values()),
        *((files, what, SPLITS) for files, *what in REFUSED_SPLITS.values()),
    ],
    ids=[*_OF_ALL, *REFUSED_SPLITS],
)
def test_a_wrong_table_ends_a_run_before_anything_is_written(tmp_path, capsys, files, what, splits):
    table = tmp_path / "table"
    table.mkdir()
    write_files(table, files if isinstance(files, dict) else {"a.csv": files})
    declared = f"name: t\ndata: {{csv: {table}, label: y, splits: {splits}}}\n"
    (tmp_path / "t.yaml").write_text(f"{declared}trainer: {{model: linear, train_steps: 10}}\n")
    before = sorted(tmp_path.rglob("*"))
    ended = main(["run", str(tmp_path / "t.yaml"), "--workdir", str(tmp_path / "runs")])
    printed = capsys.readouterr()
    assert ended in (2, 3)
    message = printed.err.replace("\n", " ")
    for each in what:
        assert each.format(table) in message
    assert "Traceback" not in printed.out + printed.err
    assert sorted(tmp_path.rglob("*")) == before
