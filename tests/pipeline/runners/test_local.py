"""The script for TFX's own CLI."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners import local

pytestmark = pytest.mark.unit


def test_an_address_as_the_folder_of_all_runs_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        local.main("digits", "gs://bucket/runs")
    assert ended.value.code == 2
    assert "WORKDIR gs://bucket/runs: this is an address" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_address_is_never_taken_for_a_path():
    folders = PipelineFolders("gs://bucket/runs", "digits")
    assert (folders.home, folders.serving) == ("gs://bucket/runs/digits", "gs://bucket/runs/digits/serving")
