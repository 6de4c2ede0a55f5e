"""The scripts for TFX's command line: local runs and services."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.pipeline import making
from tests.pipeline.runners.deployed import as_sections
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.platforms.registry import VERTEX
from tfx_estimator.pipeline.runners import local, service_runner


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys) -> Callable[[str, str], str]:
    """Runs a script that must exit with code 2; returns its stderr."""
    monkeypatch.chdir(tmp_path)

    def run(source: str, workdir: str) -> str:
        with pytest.raises(SystemExit) as ended:
            local.main(source, workdir)
        assert ended.value.code == 2
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("workdir", "message"),
    [("hdfs://node/runs", "the object stores"), ("", "it names no folder"), ("~nosuchuser/x", "there is no user")],
)
def test_an_address_that_cannot_hold_runs_is_refused(refused, tmp_path, workdir, message):
    assert f"WORKDIR {workdir}: " in (error := refused("digits", workdir))
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_a_bucket_is_refused_as_the_work_folder_of_a_cluster(refused, monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}}))
    assert "this is an address" in refused("digits", "gs://bucket/runs")


def test_dataflow_is_refused_with_a_local_work_folder(refused, tmp_path):
    where = "project: mine-12, region: europe-west4, temp_location: 'gs://mine/tmp', sdk_container_image: mine/image"
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndata: {dataset: mnist, data_dir: 'gs://mine/data'}\n"
        "trainer: {model: mnist_cnn, train_steps: 5}\n"
        f"beam: {{runner: dataflow, dataflow: {{{where}}}}}\n"
    )
    assert "Dataflow's workers do not see its work folder" in refused("mine.yaml", "runs")


def test_an_address_is_not_treated_as_a_path():
    folders = PipelineFolders("gs://bucket/runs", "digits")
    assert (folders.home, folders.serving) == ("gs://bucket/runs/digits", "gs://bucket/runs/digits/serving")


def test_local_files_of_a_bucket_are_in_the_users_state_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stored, here = PipelineFolders("gs://bucket/all/runs/", "digits"), PipelineFolders("runs", "digits")
    assert stored.metadata == str(tmp_path / "tfx-estimator/gs/bucket/all/runs/digits/metadata.sqlite")
    assert (here.local, os.path.dirname(here.logs)) == (here.home, here.home)


def test_a_moved_folder_is_updated_in_ml_metadata_before_a_run(tmp_path):
    (tmp_path / "word").write_text("any")
    making.run(PipelineFolders(str(tmp_path / "runs"), "digits"), tmp_path / "word")
    (tmp_path / "runs").rename(tmp_path / "old")
    folders = PipelineFolders(str(tmp_path / "old"), "digits")
    local.prepare(load("digits", [f"data.data_dir={tmp_path / 'data'}"]), folders)
    made = [each.uri for each in making.artifacts(folders.metadata)]
    assert made == [f"{folders.root}/Making/model/1", f"{folders.root}/Copying/copied/2"]


DATA = {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}}


@pytest.fixture
def script(tmp_path, monkeypatch, capsys) -> str:
    """Writes a service's script and declaration to the current folder; returns the output of `compile`."""
    target = VERTEX
    monkeypatch.chdir(tmp_path)
    Path("networks.py").write_text("def small(num_classes):\n    raise AssertionError\n")
    trainer = {"model": "networks:small", "train_steps": 10}
    declaration = {"name": "digits", "data": DATA, "trainer": trainer, **as_sections(target)}
    Path("mine.yaml").write_text(yaml.safe_dump(declaration))
    assert load("mine.yaml", target=target)
    assert main(["copy", f"{target}_runner", "runner.py"]) == 0
    assert f"tfx pipeline compile --engine {target} --pipeline_path runner.py" in capsys.readouterr().out
    assert main(["compile", "mine.yaml", "--target", target, "--output", "wanted"]) == 0
    assert "note: deploy.image: steps have accelerators" in capsys.readouterr().err
    return Path("wanted").read_text()


def test_the_script_compiles_the_same_as_compile(script, capsys):
    from tfx.tools.cli import labels
    from tfx.tools.cli.handler.vertex_handler import VertexHandler

    VertexHandler({labels.ENGINE_FLAG: VERTEX, labels.PIPELINE_DSL_PATH: "runner.py"}).compile_pipeline()
    assert Path("digits.json").read_text() == script
    assert len(list(Path().glob("*.whl"))) == 1
    # It prints the same remarks.
    stdout, stderr = capsys.readouterr()
    assert "note: deploy.image: steps have accelerators" in stderr
    assert "your own modules, networks" in stdout
    assert "submit it to project example-project, region europe-west4" in stdout
    assert "PipelineJob(template_path=…, labels={'team': 'vision'}).submit(service_account='trainer@" in stdout


def test_a_mistake_is_reported_and_ends_the_script(script, capsys):
    (wheel,) = Path().glob("*.whl")
    wheel.unlink()
    wheel.mkdir()
    declared = yaml.safe_load(Path("mine.yaml").read_text())
    for code, message in ((1, f"{wheel} cannot be written: Is a directory"), (2, "deploy.image")):
        with pytest.raises(SystemExit) as ended:
            service_runner.main("mine.yaml", VERTEX)
        assert ended.value.code == code
        assert message in capsys.readouterr().err
        declared["deploy"].pop("image", None)
        Path("mine.yaml").write_text(yaml.safe_dump(declared))
