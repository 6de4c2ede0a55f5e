"""The summary that a run leaves, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal

import pytest
from rich.console import Console

from tfx_estimator.pipeline.base.ending import scratch, signals
from tfx_estimator.pipeline.base.errors import NotBlessedError
from tfx_estimator.pipeline.run.recording import recorded
from tfx_estimator.pipeline.run.summary import Summary
from tfx_estimator.pipeline.run.view import View
from tfx_estimator.pipeline.runners.listener import NodeRun

pytestmark = pytest.mark.unit


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


def test_a_second_interruption_does_not_lose_it(tmp_path, view):
    before, read = [signal.getsignal(number) for number in signals.NUMBERS], []

    def collect() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        read.append(1)

    view.node_ended(NodeRun("CsvExampleGen", "ran", 1.0, 3))
    with pytest.raises(signals.SignalledError):
        interrupt(recorded(Summary("mine.yaml", "mine"), view, str(tmp_path), prints=False, collect=collect))
    assert read == [1]
    told = left(tmp_path)
    assert (told["state"], told["exit_code"]) == ("interrupted", 130)
    assert [each["node"] for each in told["components"]] == ["CsvExampleGen"]
    assert [signal.getsignal(number) for number in signals.NUMBERS] == before


def test_what_cannot_be_read_hides_nothing(tmp_path, view):
    view.node_ended(NodeRun("CsvExampleGen", "ran", 1.0, 3))
    with (
        pytest.raises(ValueError, match="it broke"),
        recorded(Summary("mine.yaml"), view, str(tmp_path), prints=False, collect=lambda: 1 / 0),
    ):
        raise ValueError("it broke")
    assert left(tmp_path)["error"]["what"] == "it broke"


@pytest.mark.parametrize(
    ("noted", "told"),
    [("here", True), ("gs://bucket/training/a-5", True), ("", False), ("moved/a-5", False)],
    ids=["here", "stored", "published", "moved"],
)
def test_where_a_training_has_left_its_things_is_told_by_the_run_that_it_is_of(tmp_path, view, noted, told):
    noted = str(tmp_path) if noted == "here" else noted
    with scratch.used():
        scratch.note(scratch.TRAINING_FOLDER, str(tmp_path))
        with contextlib.suppress(ValueError), recorded(Summary("mine.yaml"), view, str(tmp_path), prints=False):
            raise ValueError("before it trained")
        assert left(tmp_path)["training_folder"] is None
        with contextlib.suppress(ValueError), recorded(Summary("mine.yaml"), view, str(tmp_path), prints=False):
            scratch.note(scratch.TRAINING_FOLDER, noted)
            raise ValueError("later")
        assert left(tmp_path)["training_folder"] == (noted if told else None)


def test_a_model_that_had_to_be_blessed_is_a_failure_there_too(tmp_path, view):
    results = Summary("mine.yaml", blessed=False, reasons=["accuracy is 0.1"])
    with pytest.raises(NotBlessedError, match=r"accuracy is 0\.1"), recorded(results, view, str(tmp_path), False):
        results.check_blessed()
    told = left(tmp_path)
    assert (told["state"], told["exit_code"], told["error"]["type"]) == ("failed", 7, "NotBlessedError")
