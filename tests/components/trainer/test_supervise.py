"""What the supervised tasks of a training are told."""

from __future__ import annotations

import json

import pytest

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import Settings

pytestmark = [pytest.mark.unit, pytest.mark.cluster]


@pytest.mark.parametrize("declared", [False, True])
def test_tasks_of_a_joined_cluster_are_told_how_many_they_are(tmp_path, monkeypatch, caplog, declaration, declared):
    from tfx_estimator.components.trainer.jobs import supervise

    section = {"train": {"strategy": "parameter_server"}}
    settings = Settings(arguments={"distribution": section})
    if declared:
        settings = Settings(declaration=declaration(distribution=section))
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2", "localhost:3"], "ps": ["localhost:4", "localhost:5"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}}))
    caplog.set_level("INFO", "absl.tfx_estimator")
    job = Job("{}", "{}", {}, str(tmp_path / "training"), settings, "estimator")
    logs = tmp_path / "logs"
    logs.mkdir()
    # The task is ended as soon as it is started.
    supervise(job, str(logs), enough=lambda: True)
    train = Job.load(str(logs / "job-worker-1.json")).settings.distribution.train
    assert (train.worker_count, train.ps_count) == (3, 2)
    assert caplog.messages[0] == f"training begins; the logs of its tasks: {logs}"


@pytest.mark.parametrize(("training_dir", "stays"), [("store://bucket/training", False), ("", True)])
def test_a_worker_hears_no_word_that_was_to_an_earlier_job(tmp_path, monkeypatch, bucket, training_dir, stays):
    from tfx_estimator.components.trainer.jobs import supervise

    section = {"train": {"strategy": "multi_worker_mirrored"}}
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    settings = Settings(arguments={"distribution": section})
    job = Job("{}", "{}", {}, training_dir or str(tmp_path / "training"), settings, "estimator")
    (stop := tmp_path / "logs" / "stop").parent.mkdir()
    stop.write_text("120")
    supervise(job, str(stop.parent), enough=lambda: True)
    # In a folder that all share it may be the chief's, which has begun before.
    assert stop.exists() == stays
