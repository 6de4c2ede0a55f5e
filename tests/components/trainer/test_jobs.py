"""The logs of a training whose folder lies in an object store: written here, kept there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfx_estimator.components.trainer.jobs import logs_folder
from tfx_estimator.components.trainer.protocol.stop import ask_to_stop, asked_to_stop
from tfx_estimator.pipeline.base.errors import TaskFailedError

pytestmark = pytest.mark.unit


def fail() -> None:
    with logs_folder("store://bucket/training") as logs:
        path = Path(logs, "chief-0.attempt-1.log")
        path.write_text("what was said")
        raise TaskFailedError(f"it failed, see {path}", todo=f"see the whole log: {path}")


def test_an_error_names_the_log_that_stays(bucket, tmp_path):
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


def test_a_training_that_was_published_meanwhile_gets_no_folder_anew(bucket, tmp_path):
    folder = tmp_path / "bucket" / "training"
    (folder / "logs").mkdir(parents=True)
    (folder / "training.json").touch()
    with logs_folder("store://bucket/training") as logs:
        Path(logs, "worker-0.attempt-1.log").write_text("what was said")
        folder.rename(tmp_path / "bucket" / "model_run")
    assert not folder.exists()


def test_what_an_earlier_job_told_its_tasks_is_no_word_to_the_next_one(bucket, tmp_path):
    for step in (120, 240):
        with logs_folder("store://bucket/training") as logs:
            stop = str(Path(logs, "stop"))
            assert asked_to_stop(stop) is None
            ask_to_stop(stop, step)
            assert asked_to_stop(stop) == step
            for name in ("job.json", "job-worker-0.json", "jobs.attempt-1.log"):
                Path(logs, name).write_text("{}")
    assert [path.name for path in (tmp_path / "bucket/training/logs").iterdir()] == ["jobs.attempt-1.log"]
    # As an earlier version has left it.
    (tmp_path / "bucket/training/logs/stop").write_text("120")
    with logs_folder("store://bucket/training") as logs:
        assert [each.name for each in Path(logs).iterdir()] == ["jobs.attempt-1.log"]
