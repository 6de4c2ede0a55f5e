"""Messages to the tasks of a training, and their logs if its folder is in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.jobs import logs_folder, make_job, supervise
from tfx_estimator.components.trainer.protocol.events import request_stop, stop_step
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DeclarationError, TaskFailedError


def fail() -> None:
    with logs_folder("store://bucket/training") as logs:
        path = Path(logs, "chief-0.attempt-1.log")
        path.write_text("what was said")
        raise TaskFailedError(f"it failed, see {path}", todo=f"see the whole log: {path}")


def test_an_error_names_the_stored_log(bucket, tmp_path):
    with pytest.raises(TaskFailedError) as caught:
        fail()
    kept = "store://bucket/training/logs/chief-0.attempt-1.log"
    assert (caught.value.what, caught.value.todo) == (f"it failed, see {kept}", f"see the whole log: {kept}")
    assert (tmp_path / "bucket/training/logs/chief-0.attempt-1.log").read_text() == "what was said"


def test_attempts_are_counted_over_all_runs(bucket, tmp_path):
    for attempt in (1, 2):
        with logs_folder("store://bucket/training") as logs:
            names = sorted(each.name for each in Path(logs).iterdir())
            assert names == [f"chief-0.attempt-{number}.log" for number in range(1, attempt)]
            Path(logs, f"chief-0.attempt-{attempt}.log").write_text(f"attempt {attempt}")
    kept = tmp_path / "bucket" / "training" / "logs"
    assert [path.read_text() for path in sorted(kept.iterdir())] == ["attempt 1", "attempt 2"]


def test_a_published_training_does_not_get_a_new_folder(bucket, tmp_path):
    folder = tmp_path / "bucket" / "training"
    (folder / "logs").mkdir(parents=True)
    (folder / "training.json").touch()
    with logs_folder("store://bucket/training") as logs:
        Path(logs, "worker-0.attempt-1.log").write_text("what was said")
        folder.rename(tmp_path / "bucket" / "model_run")
    assert not folder.exists()


def test_messages_of_an_earlier_job_are_ignored_by_the_next_one(bucket, tmp_path):
    for step in (120, 240):
        with logs_folder("store://bucket/training") as logs:
            stop = str(Path(logs, "stop"))
            assert stop_step(stop) is None
            request_stop(stop, step)
            assert stop_step(stop) == step
            for name in ("job.json", "job-worker-0.json", "jobs.attempt-1.log"):
                Path(logs, name).write_text("{}")
    assert [path.name for path in (tmp_path / "bucket/training/logs").iterdir()] == ["jobs.attempt-1.log"]


@pytest.mark.parametrize(
    ("key", "value"), [("keep_best", "accuracy"), ("early_stopping", "loss"), ("profile", {"start_step": 4})]
)
def test_options_that_a_late_found_run_fn_handles_itself_are_refused(tmp_path, declaration, key, value):
    module = tmp_path / "user_module.py"
    module.write_text("from mylib import *\n")
    settings = Settings(declaration=declaration(module_file=str(module), **{key: value}))
    with pytest.raises(DeclarationError, match=rf"trainer\.{key}: a run_fn "):
        make_job({}, {}, {"module_file": str(module)}, settings, str(tmp_path / "training"))


@pytest.mark.parametrize("declared", [False, True])
def test_tasks_of_a_joined_cluster_know_their_number(tmp_path, monkeypatch, caplog, declaration, declared):
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
    # The task is ended right after its start.
    supervise(job, str(logs), enough=lambda: True)
    train = Job.load(str(logs / "job-worker-1.json")).settings.distribution.train
    assert (train.worker_count, train.ps_count) == (3, 2)
    assert caplog.messages[0] == f"training begins; the logs of its tasks: {logs}"


@pytest.mark.parametrize(("training_dir", "stays"), [("store://bucket/training", False), ("", True)])
def test_a_worker_ignores_messages_to_an_earlier_job(tmp_path, monkeypatch, bucket, training_dir, stays):
    section = {"train": {"strategy": "multi_worker_mirrored"}}
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    settings = Settings(arguments={"distribution": section})
    job = Job("{}", "{}", {}, training_dir or str(tmp_path / "training"), settings, "estimator")
    (stop := tmp_path / "logs" / "stop").parent.mkdir()
    stop.write_text("120")
    supervise(job, str(stop.parent), enough=lambda: True)
    # In a shared folder it may be the chief's, which has started earlier.
    assert stop.exists() == stays
