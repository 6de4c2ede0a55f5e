"""A run from Python, after one from the command line: its result, and the other verbs on it.

It precedes the tests that bless another model in that folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path

import pytest

import tfx_estimator
from tests.e2e.conftest import Finished
from tfx_estimator.pipeline.report.source import find_runs

pytestmark = pytest.mark.e2e


def test_a_run_from_python_is_like_one_from_the_command_line(digits_run: Finished) -> None:
    environment, stderr = dict(os.environ), io.StringIO()
    with contextlib.redirect_stderr(stderr):
        result = tfx_estimator.run("digits", digits_run.workdir.path, dry_run=False)
    assert dict(os.environ) == environment
    before = digits_run.summary
    # All components are cached: it is the same training.
    assert {each.node: each.state for each in result.components if each.state != "cached"} == {
        "BaselineResolver": "resolved"
    }
    assert [each.reason for each in result.components] == [""] * len(before["components"])
    assert result.metrics["accuracy"] == before["accuracy"]
    assert result.metrics["sparse_categorical_crossentropy"] == before["loss"]
    assert (result.blessed, result.model_uri, result.report) == (
        True,
        digits_run.versions[0],
        f"{result.logs}/report.html",
    )
    assert Path(result.summary["model"], "saved_model.pb").is_file()
    assert f"accuracy      {before['accuracy']:.4f}" in stderr.getvalue()
    row = result.to_dataframe().iloc[0]
    assert (row["name"], row["accuracy"], row["blessed"]) == ("digits", before["accuracy"], True)
    loss = result.curves().query("metric == 'loss' and of == 'eval'")
    assert loss["step"].iloc[-1] == 600
    assert loss["value"].iloc[-1] == pytest.approx(before["loss"], abs=1e-5)
    assert "<td>Trainer</td><td>cached</td>" in result._repr_html_()
    assert json.loads((digits_run.logs / "summary.json").read_text())["model"] == result.summary["model"]
    assert result.report
    assert f"{before['accuracy']:.4f}" in Path(result.report).read_text()
    (found,) = find_runs([result.logs])
    assert found.summary == result.summary
