"""A report that cannot be made must not fail a run; nor is one made of a run that somebody wants to end."""

from __future__ import annotations

import io
import json

import pytest

from tfx_estimator.pipeline.base.errors import DataNotFoundError
from tfx_estimator.pipeline.run.console import reported
from tfx_estimator.pipeline.run.summary import Summary
from tfx_estimator.pipeline.run.terminal import make_console
from tfx_estimator.pipeline.run.view import View

pytestmark = pytest.mark.unit


def leave(logs, error: BaseException | None = None) -> str:
    """Ends a run in a folder of logs, and returns what was printed."""
    results, terminal = Summary("own.yaml"), io.StringIO()
    with reported(results, View(make_console(terminal)), str(logs)):
        results.end(error)
        results.write(str(logs / "summary.json"))
    return terminal.getvalue()


def test_a_report_that_cannot_be_made_is_a_warning_on_the_terminal_and_in_the_summary(tmp_path):
    said = leave(tmp_path)  # there is no declaration.yaml
    assert "warning  report: it could not be made: FileNotFoundError" in said
    left = json.loads((tmp_path / "summary.json").read_text())
    assert (left["state"], left["exit_code"]) == ("succeeded", 0)
    assert [each["component"] for each in left["warnings"]] == ["report"]


@pytest.mark.parametrize(
    ("error", "there"), [(None, True), (DataNotFoundError("no mnits"), True), (KeyboardInterrupt(), False)]
)
def test_a_run_leaves_its_report_however_it_ends_but_when_it_is_interrupted(tmp_path, error, there):
    (tmp_path / "declaration.yaml").write_text("name: own  # own.yaml:1\n")
    said = leave(tmp_path, error)
    page = tmp_path / "report.html"
    assert page.exists() == there
    assert said == (f"report        {page}\n" if there else "")
    if error and there:
        assert "no mnits" in page.read_text()
