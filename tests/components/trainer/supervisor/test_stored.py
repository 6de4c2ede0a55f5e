"""Messages between tasks of an external cluster through their training folder, local or in a store."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import pytest
from tfx.utils import path_utils

from tfx_estimator.components.trainer import training_folder
from tfx_estimator.components.trainer.best.decision import Record
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.events import is_over, stop_step
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor import stored
from tfx_estimator.components.trainer.supervisor.stopping import Signals
from tfx_estimator.components.trainer.supervisor.stored import EvaluatorBeat, StoredStop
from tfx_estimator.components.trainer.supervisor.supervisor import Supervisor
from tfx_estimator.pipeline.base.errors import ExportError, TaskStalledError

SECONDS = 1.0


@pytest.fixture(params=["store://bucket/training", ""])
def job(request, bucket, tmp_path):
    """A job with a training folder in a store or on this machine."""
    (tmp_path / "bucket" / "training").mkdir(parents=True)
    folder = request.param or str(tmp_path / "bucket" / "training")
    section = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True}
    return Job("{}", "{}", {}, folder, Settings(arguments={"distribution": section}, stall_timeout=SECONDS), "keras")


def waits(job: Job, logs: Path) -> bool:
    """The chief's side."""
    logs.mkdir()
    supervisor = Supervisor(job, str(logs), str(logs))
    with Signals() as signals:
        return supervisor._evaluator_exports(signals)


def test_an_evaluation_may_take_longer_than_stall_timeout(job, tmp_path):
    # Of an earlier training.
    EvaluatorBeat(job.training_dir, SECONDS, lambda: False).write(1.0)
    beat = EvaluatorBeat(job.training_dir, SECONDS, lambda: False)
    exported = tmp_path / "bucket/training" / path_utils.serving_model_dir("exported")
    began = time.monotonic()

    def evaluate() -> None:
        while time.monotonic() < began + 4 * SECONDS:
            beat.write(time.monotonic())
            time.sleep(SECONDS / 20)
        exported.mkdir(parents=True)
        (exported / "saved_model.pb").touch()

    thread = threading.Thread(target=evaluate)
    thread.start()
    assert waits(job, tmp_path / "logs")
    assert time.monotonic() - began >= 4 * SECONDS
    thread.join()
    assert stored.read(job.training_dir)
    stored.remove(job.training_dir)
    assert stored.read(job.training_dir) is None


def test_the_chief_gives_up_an_evaluator_without_progress(job, tmp_path):
    EvaluatorBeat(job.training_dir, SECONDS, lambda: False).write(1.0)
    began = time.monotonic()
    with pytest.raises(ExportError, match="left no model") as raised:
        waits(job, tmp_path / "logs")
    assert SECONDS <= time.monotonic() - began < 10
    assert "a sign of progress within 1 s" in raised.value.expected


def test_a_heartbeat_is_written_at_intervals_and_not_into_a_published_folder(clock, job, tmp_path):
    done: list[bool] = []
    beat = EvaluatorBeat(job.training_dir, 600.0, lambda: bool(done))
    beat.write(0.0)
    assert stored.read(job.training_dir) is None
    beat.write(1.0)
    first = stored.read(job.training_dir)
    # Too soon, then nothing new.
    clock.now += 29
    beat.write(2.0)
    clock.now += 1
    beat.write(1.0)
    assert stored.read(job.training_dir) == first
    beat.write(3.0)
    assert stored.read(job.training_dir) > first
    stored.remove(job.training_dir)
    done.append(True)
    clock.now += 30
    beat.write(4.0)
    (tmp_path / "bucket" / "training").rmdir()
    done.clear()
    clock.now += 30
    beat.write(5.0)
    assert not (tmp_path / "bucket" / "training").exists()


def test_an_evaluator_that_finds_that_training_is_over_leaves_the_export_to_the_cluster(job, tmp_path):
    early = {"metric": "loss", "patience": 1}
    section = {"model": "mnist_cnn", "train_steps": 40, "early_stopping": early}
    declared = job.settings.with_trainer(distribution={"train": "multi_worker_mirrored:2", "evaluator": True})
    declaration = {"trainer": {**section, **declared.arguments}}
    job = dataclasses.replace(job, settings=Settings(declaration=declaration, stall_timeout=SECONDS))
    Record().add(20, {"loss": 1.0}).add(40, {"loss": 1.0}).save(job.training_dir)
    assert not waits(job, tmp_path / "logs")


def test_a_store_is_not_polled_many_times_a_second(clock, job, tmp_path, monkeypatch):
    slept = set()

    def sleep(seconds: float) -> None:
        slept.add(seconds)
        clock.now += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(ExportError):
        waits(job, tmp_path / "logs")
    with pytest.raises(TaskStalledError):
        training_folder.wait(training_folder.TrainingFolder(job.training_dir, "key", 20), 10.0)
    assert slept == ({2.0} if "://" in job.training_dir else {0.1, 0.2})


@pytest.fixture
def task(tmp_path):
    """Returns a function that makes a task's StoredStop and stop file."""
    (tmp_path / "training").mkdir()

    def make(name: str) -> tuple[StoredStop, str]:
        own = str(tmp_path / f"{name}-stop")
        return StoredStop(str(tmp_path / "training"), own), own

    return make


@pytest.mark.parametrize("over", [False, True])
def test_the_other_tasks_follow_the_chiefs_request(task, over):
    (chief, _), (worker, own) = task("chief"), task("worker")
    assert not worker.poll()
    assert stop_step(own) is None
    chief.request(120, over)
    assert worker.poll()
    assert (stop_step(own), is_over(own)) == (120, over)


def test_a_request_of_an_earlier_training_is_ignored(task, tmp_path):
    task("chief")[0].request(120, over=True)
    later, own = task("worker")
    assert not later.poll()
    assert stop_step(own) is None
    later.remove()
    assert list((tmp_path / "training").iterdir()) == []


def test_tasks_stop_without_an_available_store(task, tmp_path):
    chief, own = task("chief")
    (tmp_path / "training").rmdir()
    assert not chief.poll()
    chief.request(120, over=False)
    assert stop_step(own) == 120
    chief.remove()
