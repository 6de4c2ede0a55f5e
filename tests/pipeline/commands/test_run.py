"""`tfx-estimator run`: what it refuses before TensorFlow starts."""

from __future__ import annotations

import json
import sys

import pytest

from pipeline.__main__ import main

pytestmark = pytest.mark.unit


def test_a_whole_pipeline_in_each_task_of_a_cluster_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}}))
    assert main(["run", "digits"]) == 6
    said = capsys.readouterr().err
    assert "this process is worker-1 of a cluster of 3 tasks" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("workdir", "text"),
    [("exp[1]/runs", "holds `[`, a wildcard"), ("file", "this is no folder"), ("file/runs", "file is no folder")],
)
def test_a_workdir_that_cannot_hold_a_run_is_refused_at_once(tmp_path, monkeypatch, capsys, workdir, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    loaded = set(sys.modules)
    assert main(["run", "digits", "--workdir", workdir]) == 2
    said = capsys.readouterr().err
    assert f"--workdir {workdir}: " in said
    assert text in said
    assert not {name for name in set(sys.modules) - loaded if name.startswith("tensorflow")}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
