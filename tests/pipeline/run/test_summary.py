"""The summary and the report that a run writes, however it ends."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import signal

import pytest
from rich.console import Console

from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.ending import scratch, signals
from tfx_estimator.pipeline.run.console import reported
from tfx_estimator.pipeline.run.summary import Summary, Warned, recorded
from tfx_estimator.pipeline.run.terminal import make_console
from tfx_estimator.pipeline.run.view import View
from tfx_estimator.pipeline.runners.listener import NodeRun


def written(tmp_path, error: BaseException | None = None, **fields: object) -> dict:
    summary = Summary("my.yaml", "digits", **fields)  # type: ignore[arg-type]
    summary.end(error)
    summary.write(str(tmp_path / "summary.json"))
    return json.loads((tmp_path / "summary.json").read_text())


def test_the_summary_of_a_successful_run_has_no_error_and_null_for_nan(tmp_path):
    left = written(tmp_path, loss=float("nan"), warnings=[Warned("Trainer", "half as large")])
    assert (left["name"], left["source"], left["state"], left["exit_code"]) == ("digits", "my.yaml", "succeeded", 0)
    assert left["error"] is left["loss"] is None
    assert left["warnings"] == [{"component": "Trainer", "text": "half as large"}]
    assert datetime.datetime.fromisoformat(left["started"]).tzinfo is not None
    assert left["seconds"] >= 0


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (errors.DataNotFoundError("no mnits", expected="mnist", todo="look"), "failed", 3),
        (errors.StoppedError("stopped", exit_code=143), "interrupted", 143),
        (KeyboardInterrupt(), "interrupted", 130),
        (SystemExit(143), "interrupted", 143),
        (OSError(28, "No space left on device"), "failed", 1),
    ],
)
def test_the_summary_of_an_unsuccessful_run_has_its_state_and_error(tmp_path, error, state, code):
    left = written(tmp_path, error, components=[NodeRun("Trainer", "failed", 1.0, None)])
    assert (left["state"], left["exit_code"], left["error"]["type"]) == (state, code, type(error).__name__)
    assert left["components"] == [
        {"node": "Trainer", "state": "failed", "seconds": 1.0, "execution_id": None, "upstream": [], "reason": ""}
    ]
    if code == 3:
        assert left["error"] == {"type": "DataNotFoundError", "what": "no mnits", "expected": "mnist", "todo": "look"}


@pytest.fixture
def view():
    made = View(Console(quiet=True))
    yield made
    made.close()


def left(tmp_path) -> dict:
    return json.loads((tmp_path / "summary.json").read_text())


def interrupt(context: contextlib.AbstractContextManager) -> None:
    with signals.handled(), context:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()


def test_a_second_interruption_does_not_lose_the_summary(tmp_path, view):
    before, read = [signal.getsignal(number) for number in signals.NUMBERS], []

    def collect() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        read.append(1)

    view.node_ended(NodeRun("CsvExampleGen", "ran", 1.0, 3))
    with pytest.raises(signals.SignalledError):
        interrupt(recorded(Summary("mine.yaml", "mine"), view, str(tmp_path), prints=False, collect=collect))
    assert read == [1]
    summary = left(tmp_path)
    assert (summary["state"], summary["exit_code"]) == ("interrupted", 130)
    assert [each["node"] for each in summary["components"]] == ["CsvExampleGen"]
    assert [signal.getsignal(number) for number in signals.NUMBERS] == before


def test_results_that_cannot_be_read_do_not_hide_the_error(tmp_path, view):
    view.node_ended(NodeRun("CsvExampleGen", "ran", 1.0, 3))
    with (
        pytest.raises(ValueError, match="it broke"),
        recorded(Summary("mine.yaml"), view, str(tmp_path), prints=False, collect=lambda: 1 / 0),
    ):
        raise ValueError("it broke")
    assert left(tmp_path)["error"]["what"] == "it broke"


@pytest.mark.parametrize(
    ("noted", "expected"),
    [("here", True), ("gs://bucket/training/a-5", True), ("", False), ("moved/a-5", False)],
    ids=["here", "stored", "published", "moved"],
)
def test_the_training_folder_is_recorded_only_by_the_run_that_trained_in_it(tmp_path, view, noted, expected):
    noted = str(tmp_path) if noted == "here" else noted
    with scratch.used():
        scratch.note(scratch.TRAINING_FOLDER, str(tmp_path))
        with contextlib.suppress(ValueError), recorded(Summary("mine.yaml"), view, str(tmp_path), prints=False):
            raise ValueError("before it trained")
        assert left(tmp_path)["training_folder"] is None
        with contextlib.suppress(ValueError), recorded(Summary("mine.yaml"), view, str(tmp_path), prints=False):
            scratch.note(scratch.TRAINING_FOLDER, noted)
            raise ValueError("later")
        assert left(tmp_path)["training_folder"] == (noted if expected else None)


def test_a_model_that_must_be_blessed_and_is_not_fails_the_summary_too(tmp_path, view):
    results = Summary("mine.yaml", blessed=False, reasons=["accuracy is 0.1"])
    with (
        pytest.raises(errors.NotBlessedError, match=r"accuracy is 0\.1"),
        recorded(results, view, str(tmp_path), False),
    ):
        results.check_blessed()
    summary = left(tmp_path)
    assert (summary["state"], summary["exit_code"], summary["error"]["type"]) == ("failed", 7, "NotBlessedError")


def leave(logs, error: BaseException | None = None) -> str:
    """Ends a run in a log folder; returns its terminal output."""
    results, terminal = Summary("own.yaml"), io.StringIO()
    with reported(results, View(make_console(terminal)), str(logs)):
        results.end(error)
        results.write(str(logs / "summary.json"))
    return terminal.getvalue()


def test_a_report_that_cannot_be_made_is_a_warning_on_the_terminal_and_in_the_summary(tmp_path):
    output = leave(tmp_path)  # there is no declaration.yaml
    assert "warning  report: it could not be made: FileNotFoundError" in output
    left = json.loads((tmp_path / "summary.json").read_text())
    assert (left["state"], left["exit_code"]) == ("succeeded", 0)
    assert [each["component"] for each in left["warnings"]] == ["report"]


@pytest.mark.parametrize(
    ("error", "there"), [(None, True), (errors.DataNotFoundError("no mnits"), True), (KeyboardInterrupt(), False)]
)
def test_a_run_writes_its_report_unless_it_is_interrupted(tmp_path, error, there):
    (tmp_path / "declaration.yaml").write_text("name: own  # own.yaml:1\n")
    output = leave(tmp_path, error)
    page = tmp_path / "report.html"
    assert page.exists() == there
    assert output == (f"report        {page}\n" if there else "")
    if error and there:
        assert "no mnits" in page.read_text()
