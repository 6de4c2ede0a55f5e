"""What is printed of a job that succeeded elsewhere, whatever it was."""

from __future__ import annotations

import tempfile
from types import SimpleNamespace

import pytest

from tfx_estimator.pipeline.commands import submit
from tfx_estimator.pipeline.platforms.follow import Look
from tfx_estimator.pipeline.platforms.note import Note

pytestmark = pytest.mark.unit


def followed(outputs: dict[str, dict]) -> int:
    look = Look("SUCCEEDED", True, tasks={"Trainer": "SUCCEEDED", "Resolver": "SUCCEEDED"}, outputs=outputs)
    return submit._follow(SimpleNamespace(look=lambda job: look), Note("vertex", "it", "https://there"), "submitted/it")


def test_of_somebody_elses_pipeline_there_is_no_table(capfd):
    assert followed({"Train": {}}) == 0
    assert "it: SUCCEEDED" in (said := capfd.readouterr().out)
    assert "pushed model" not in said


def test_results_that_cannot_be_shown_fail_nothing(capfd, monkeypatch, tmp_path):
    with monkeypatch.context() as there:
        there.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        assert followed({"Trainer": {}}) == 0
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith("warning: its results cannot be shown: ")
    assert str(tmp_path / "gone") in warning
