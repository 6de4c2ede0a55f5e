"""How a task finds the training of its cluster's chief."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import TaskFiles
from tfx_estimator.pipeline.base.errors import RETRYABLE, PipelineError, StoppedError, TfxEstimatorError, TrainingError
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run import join
from tfx_estimator.pipeline.run.join import Rendezvous

pytestmark = pytest.mark.unit

TASKS = {"chief": ("a:1",), "worker": ("b:1",)}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineFolders:
    """A work folder, with short deadlines."""
    monkeypatch.setattr(join, "_BEAT_SECONDS", 0.05)
    monkeypatch.setattr(join, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(join, "_SILENT_SECONDS", 0.4)
    return PipelineFolders(str(tmp_path), "digits")


def write_job(folders: PipelineFolders, training: str) -> str:
    logs = Path(folders.root, "Trainer", "training", training, "logs")
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "job-chief-0.json").write_text("{}")
    return str(logs / "job-chief-0.json")


def find(folders: PipelineFolders, timeout: float = 5.0, in_step: str = "") -> str | None:
    return join._find_job(Rendezvous(folders, TASKS), folders, timeout, in_step)


def test_the_job_of_this_run_is_found_and_not_that_of_an_earlier_one(folders):
    os.utime(write_job(folders, "earlier"), (1, 1))
    with Rendezvous(folders, TASKS).led():
        threading.Timer(0.2, write_job, [folders, "this"]).start()
        assert Path(find(folders)).parents[1].name == "this"
        with pytest.raises(PipelineError, match="did not come"):
            join._find_job(Rendezvous(folders, {**TASKS, "ps": ("c:1",)}), folders, 0.2)


def test_what_a_killed_chief_left_is_not_joined(folders):
    meeting = Rendezvous(folders, TASKS)
    with meeting.led():
        write_job(folders, "this")
        left = Path(meeting._path).read_bytes()
    Path(meeting._path).write_bytes(left)
    with pytest.raises(PipelineError, match="did not come"):
        find(folders, 0.5)


def test_a_chief_that_is_killed_meanwhile_is_noticed(folders, monkeypatch):
    meeting = Rendezvous(folders, TASKS)

    def begin() -> None:
        monkeypatch.setattr(meeting, "_beat", lambda over: None)
        context.enter_context(meeting.led())

    with contextlib.ExitStack() as context:
        threading.Timer(0.1, begin).start()
        with pytest.raises(PipelineError, match="the chief of this cluster has gone"):
            find(folders)


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_the_chiefs_run_without_a_training_is_that_of_the_others(folders, fails):
    def lead() -> None:
        try:
            with Rendezvous(folders, TASKS).led():
                if fails:
                    raise ValueError
        except ValueError:
            pass

    threading.Timer(0.1, lead).start()
    if fails:
        with pytest.raises(PipelineError, match="the chief's run of this cluster failed"):
            find(folders)
    else:
        assert find(folders) is None


@pytest.mark.parametrize("stopped", [False, True])
def test_a_chief_that_is_started_again_is_waited_for(folders, monkeypatch, stopped):
    monkeypatch.setenv(RETRYABLE, "138")

    def lead() -> None:
        ended: TfxEstimatorError = TrainingError("a task was lost")
        if stopped:
            # By the code of a signal, which an operator starts again as well.
            ended = StoppedError("training was ended by SIGTERM", exit_code=143)
        else:
            ended.retryable = True
        with contextlib.suppress(TfxEstimatorError), Rendezvous(folders, TASKS).led():
            time.sleep(0.1)
            raise ended
        time.sleep(0.3)
        with Rendezvous(folders, TASKS).led():
            write_job(folders, "again")
            found.wait(5)

    found, chief = threading.Event(), threading.Thread(target=lead)
    chief.start()
    try:
        assert Path(find(folders)).parents[1].name == "again"
    finally:
        found.set()
        chief.join()


@pytest.mark.parametrize(
    ("event", "earlier", "expected"),
    [
        (Event.STARTED, False, "again"),
        (Event.RUNNING, False, "again"),
        (Event.NOTICED, False, "this"),
        # It began in the chief's life before, whatever it said since.
        (Event.STARTED, True, "this"),
    ],
)
def test_what_lost_this_task_in_step_is_not_joined_again(folders, monkeypatch, event, earlier, expected):
    monkeypatch.setenv(RETRYABLE, "138")
    lost = TrainingError("a task was lost")
    lost.retryable = True

    def lead() -> None:
        with contextlib.suppress(TfxEstimatorError), Rendezvous(folders, TASKS).led():
            files = TaskFiles(os.path.dirname(write_job(folders, "this")), "worker-0", 1)
            Path(files.task_spec).write_text("{}")
            if earlier:
                os.utime(files.task_spec, (1, 1))
            ProgressWriter(files.progress).write(event)
            written.set()
            time.sleep(0.5)
            raise lost
        time.sleep(0.1)
        with Rendezvous(folders, TASKS).led():
            write_job(folders, "again")
            found.wait(5)

    written, found = threading.Event(), threading.Event()
    chief = threading.Thread(target=lead)
    chief.start()
    try:
        written.wait(5)
        # An evaluator and a parameter server are, and so is a task in step that its cluster still waits for.
        assert Path(find(folders)).parents[1].name == "this"
        assert Path(find(folders, in_step="worker-0")).parents[1].name == expected
    finally:
        found.set()
        chief.join()
