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


def test_dataflow_is_refused_where_the_work_folder_is_here(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    where = "project: mine-12, region: europe-west4, temp_location: 'gs://mine/tmp', sdk_container_image: mine/image"
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndata: {dataset: mnist, data_dir: 'gs://mine/data'}\n"
        "trainer: {model: mnist_cnn, train_steps: 5}\n"
        f"beam: {{runner: dataflow, dataflow: {{{where}}}}}\n"
    )
    with pytest.raises(SystemExit) as ended:
        local.main("mine.yaml", "runs")
    assert ended.value.code == 2
    assert "Dataflow's workers do not see its work folder" in capsys.readouterr().err


def test_an_address_is_never_taken_for_a_path():
    folders = PipelineFolders("gs://bucket/runs", "digits")
    assert (folders.home, folders.serving) == ("gs://bucket/runs/digits", "gs://bucket/runs/digits/serving")
