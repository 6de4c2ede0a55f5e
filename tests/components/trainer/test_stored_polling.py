"""An object store is not asked many times a second: each question is paid for."""

from __future__ import annotations

import time

import pytest

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import ExportError, TaskStalledError

pytestmark = pytest.mark.unit


@pytest.fixture(params=["store://bucket/training", ""])
def folder(request, bucket, tmp_path) -> str:
    """A folder, in a store or here."""
    (tmp_path / "bucket" / "training").mkdir(parents=True)
    return request.param or str(tmp_path / "bucket" / "training")


@pytest.fixture
def slept(clock, monkeypatch) -> list[float]:
    """The waits, which pass at once."""
    made: list[float] = []

    def sleep(seconds: float) -> None:
        made.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    return made


def expected(folder: str, here: float) -> set[float]:
    return {2.0 if "://" in folder else here}


def test_for_the_training_folder_of_the_chief(folder, slept):
    from tfx_estimator.components.trainer import training_folder

    with pytest.raises(TaskStalledError):
        training_folder.wait(training_folder.TrainingFolder(folder, "key", 20), 10.0)
    assert set(slept) == expected(folder, 0.2)


def test_for_the_model_of_the_evaluator(folder, slept, tmp_path):
    from tfx_estimator.components.trainer.supervisor.signals import Signals
    from tfx_estimator.components.trainer.supervisor.supervisor import Supervisor

    section = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True}
    job = Job("{}", "{}", {}, folder, Settings(arguments={"distribution": section}, stall_timeout=10.0), "keras")
    (tmp_path / "logs").mkdir()
    supervisor = Supervisor(job, str(tmp_path / "logs"), str(tmp_path / "logs"))
    with Signals() as signals, pytest.raises(ExportError):
        supervisor._evaluator_exports(signals)
    assert set(slept) == expected(folder, 0.1)
