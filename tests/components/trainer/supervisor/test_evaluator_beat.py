"""The chief of somebody else's cluster waits for the model as long as the cluster's evaluator gets on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tfx.utils import path_utils

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor import evaluator_beat
from tfx_estimator.components.trainer.supervisor.evaluator_beat import EvaluatorBeat
from tfx_estimator.components.trainer.supervisor.signals import Signals
from tfx_estimator.components.trainer.supervisor.supervisor import Supervisor
from tfx_estimator.pipeline.base.errors import ExportError

pytestmark = pytest.mark.unit
SECONDS = 1.0


@pytest.fixture(params=["store://bucket/training", ""])
def job(request, bucket, tmp_path):
    """A job, whose training folder lies in a store or here."""
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
    EvaluatorBeat(job.training_dir, SECONDS, lambda: False).tell(1.0)
    beat = EvaluatorBeat(job.training_dir, SECONDS, lambda: False)
    exported = tmp_path / "bucket/training" / path_utils.serving_model_dir("exported")
    began = time.monotonic()

    def evaluate() -> None:
        while time.monotonic() < began + 4 * SECONDS:
            beat.tell(time.monotonic())
            time.sleep(SECONDS / 20)
        exported.mkdir(parents=True)
        (exported / "saved_model.pb").touch()

    thread = threading.Thread(target=evaluate)
    thread.start()
    assert waits(job, tmp_path / "logs")
    assert time.monotonic() - began >= 4 * SECONDS
    thread.join()
    assert evaluator_beat.read(job.training_dir)
    evaluator_beat.forget(job.training_dir)
    assert evaluator_beat.read(job.training_dir) is None


def test_an_evaluator_that_does_not_get_on_is_given_up(job, tmp_path):
    EvaluatorBeat(job.training_dir, SECONDS, lambda: False).tell(1.0)
    began = time.monotonic()
    with pytest.raises(ExportError, match="left no model") as raised:
        waits(job, tmp_path / "logs")
    assert SECONDS <= time.monotonic() - began < 10
    assert "a sign of progress within 1 s" in raised.value.expected


def test_what_has_got_on_is_told_now_and_then_and_not_into_a_published_folder(clock, job, tmp_path):
    done: list[bool] = []
    beat = EvaluatorBeat(job.training_dir, 600.0, lambda: bool(done))
    beat.tell(0.0)
    assert evaluator_beat.read(job.training_dir) is None
    beat.tell(1.0)
    first = evaluator_beat.read(job.training_dir)
    # Too soon, then nothing new.
    clock.now += 29
    beat.tell(2.0)
    clock.now += 1
    beat.tell(1.0)
    assert evaluator_beat.read(job.training_dir) == first
    beat.tell(3.0)
    assert evaluator_beat.read(job.training_dir) > first
    evaluator_beat.forget(job.training_dir)
    done.append(True)
    clock.now += 30
    beat.tell(4.0)
    (tmp_path / "bucket" / "training").rmdir()
    done.clear()
    clock.now += 30
    beat.tell(5.0)
    assert not (tmp_path / "bucket" / "training").exists()
