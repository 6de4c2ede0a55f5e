"""What a run leaves for scripts, however it ends."""

from __future__ import annotations

import datetime
import json

import pytest

from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.run.summary import Summary, Warned
from tfx_estimator.pipeline.runners.listener import NodeRun

pytestmark = pytest.mark.unit


def written(tmp_path, error: BaseException | None = None, **fields: object) -> dict:
    summary = Summary("my.yaml", "digits", **fields)  # type: ignore[arg-type]
    summary.end(error)
    summary.write(str(tmp_path / "summary.json"))
    return json.loads((tmp_path / "summary.json").read_text())


def test_a_run_that_succeeded_has_no_error_and_what_is_no_number_is_null(tmp_path):
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
def test_a_run_that_did_not_succeed_tells_how_it_ended(tmp_path, error, state, code):
    left = written(tmp_path, error, components=[NodeRun("Trainer", "failed", 1.0, None)])
    assert (left["state"], left["exit_code"], left["error"]["type"]) == (state, code, type(error).__name__)
    assert left["components"] == [
        {"node": "Trainer", "state": "failed", "seconds": 1.0, "execution_id": None, "upstream": []}
    ]
    if code == 3:
        assert left["error"] == {"type": "DataNotFoundError", "what": "no mnits", "expected": "mnist", "todo": "look"}
