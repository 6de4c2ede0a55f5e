"""Tasks that join the training of their cluster's chief, in a folder and in an object store."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tests.store.s3 import ADDRESS, S3, serving
from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.components.trainer.cluster import tf_config
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import TaskFiles
from tfx_estimator.components.trainer.supervisor import stored
from tfx_estimator.pipeline.base.errors import RETRYABLE, PipelineError, StoppedError, TfxEstimatorError, TrainingError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run import join
from tfx_estimator.pipeline.run.rendezvous import Rendezvous, StoredRendezvous, meeting_of
from tfx_estimator.pipeline.run.view import View

TASKS = {"chief": ("a:1",), "worker": ("b:1",)}


@pytest.fixture
def server() -> Iterator[S3]:
    with serving() as server:
        yield server


@pytest.fixture(params=["folder", "store"])
def folders(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineFolders:
    """A work folder; the deadlines of a join are shortened."""
    for kind in (Rendezvous, StoredRendezvous):
        for name, seconds in (("beat_seconds", 0.05), ("poll_seconds", 0.02), ("silent_seconds", 1.5)):
            monkeypatch.setattr(kind, name, seconds)
    if request.param == "folder":
        return PipelineFolders(str(tmp_path), "digits")
    request.getfixturevalue("server")
    return PipelineFolders(f"{ADDRESS}/{tmp_path.name}", "digits")


def write_job(folders: PipelineFolders, training: str) -> str:
    job = Job("", "", {}, os.path.join(folders.root, "Trainer", "training", training))
    if folders.is_stored:
        stored.offer(job)
        return os.path.join(job.training_dir, "cluster", "job.json")
    os.makedirs(logs := os.path.join(job.training_dir, "logs"), exist_ok=True)
    job.save(path := os.path.join(logs, "job-chief-0.json"))
    return path


def age(job: str) -> None:
    """Makes a job one of long ago."""
    if job.startswith("s3://"):
        write_whole(job, json.dumps({**read_json(job), "at": 1.0}))
    else:
        os.utime(job, (1, 1))


def find(folders: PipelineFolders, timeout: float = 5.0, in_step: str = "") -> str | None:
    return join._find_job(meeting_of(folders, TASKS, "this"), folders, timeout, in_step)


def training_of(job: str | None) -> str:
    return Path(job or "").parents[1].name


def test_the_job_of_this_run_is_found_and_not_that_of_an_earlier_one(folders):
    age(write_job(folders, "earlier"))
    with meeting_of(folders, TASKS).leading():
        threading.Timer(0.2, write_job, [folders, "this"]).start()
        assert training_of(find(folders)) == "this"
        with pytest.raises(PipelineError, match="did not start"):
            join._find_job(meeting_of(folders, {**TASKS, "ps": ("c:1",)}), folders, 0.2)


def test_the_training_of_a_killed_chief_is_not_joined(folders):
    meeting = meeting_of(folders, TASKS)
    with meeting.leading():
        write_job(folders, "this")
        left = read_json(meeting._path)
    write_whole(meeting._path, json.dumps(left))
    with pytest.raises(PipelineError, match="did not start"):
        find(folders, 0.5)


def test_a_chief_that_is_killed_while_a_task_waits_is_noticed(folders, monkeypatch):
    meeting = meeting_of(folders, TASKS)

    def begin() -> None:
        monkeypatch.setattr(meeting, "_beat", lambda: None)
        context.enter_context(meeting.leading())

    with contextlib.ExitStack() as context:
        threading.Timer(0.1, begin).start()
        with pytest.raises(PipelineError, match="the chief of this cluster is lost"):
            find(folders)


@pytest.mark.parametrize("fails", [False, True])
def test_the_other_tasks_end_with_a_chief_that_does_not_train(folders, fails):
    def lead() -> None:
        with contextlib.suppress(ValueError), meeting_of(folders, TASKS).leading():
            if fails:
                raise ValueError

    threading.Timer(0.1, lead).start()
    failed = pytest.raises(PipelineError, match="the chief's run of this cluster failed")
    with failed if fails else contextlib.nullcontext():
        assert find(folders) is None


@pytest.mark.parametrize("declaration", ["this", "an earlier one"])
def test_the_end_of_a_run_of_another_declaration_is_no_end(folders, declaration):
    with meeting_of(folders, TASKS, declaration).leading():
        pass
    begun = declaration == "this"
    with contextlib.nullcontext() if begun else pytest.raises(PipelineError, match="did not start"):
        assert find(folders, 0.2) is None


def lost() -> TrainingError:
    error = TrainingError("a task was lost")
    error.retryable = True
    return error


@contextlib.contextmanager
def started_again(folders: PipelineFolders, first: Callable[[], TfxEstimatorError], pause: float) -> Iterator[None]:
    """Runs a chief whose first run raises `first()`; its second run trains until the context exits."""
    left = threading.Event()

    def lead() -> None:
        with contextlib.suppress(TfxEstimatorError), meeting_of(folders, TASKS).leading():
            raise first()
        time.sleep(pause)
        with meeting_of(folders, TASKS).leading():
            write_job(folders, "again")
            left.wait(5)

    chief = threading.Thread(target=lead)
    chief.start()
    try:
        yield
    finally:
        left.set()
        chief.join()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_chief_that_restarts_is_waited_for(folders, monkeypatch, stopped):
    monkeypatch.setenv(RETRYABLE, "138")

    def first() -> TfxEstimatorError:
        time.sleep(0.1)
        # With a signal's exit code, on which an operator restarts a pod as well.
        return StoppedError("training was ended by SIGTERM", exit_code=143) if stopped else lost()

    with started_again(folders, first, 0.3):
        assert training_of(find(folders)) == "again"


@pytest.mark.parametrize(
    ("event", "earlier", "expected"),
    [
        (Event.STARTED, False, "again"),
        (Event.RUNNING, False, "again"),
        (Event.NOTICED, False, "this"),
        # It started under an earlier run of the chief, whatever events it wrote since.
        (Event.STARTED, True, "this"),
    ],
)
def test_a_training_that_lost_this_synchronous_task_is_not_joined_again(
    folders, monkeypatch, tmp_path, event, earlier, expected
):
    monkeypatch.setenv(RETRYABLE, "138")
    written, lose = threading.Event(), threading.Event()

    def first() -> TfxEstimatorError:
        job = write_job(folders, "this")
        logs = str(tmp_path) if folders.is_stored else os.path.dirname(job)
        files = TaskFiles(logs, "worker-0", 1)
        Path(files.task_spec).write_text("{}")
        ProgressWriter(files.progress).write(event)
        entering = meeting_of(folders, TASKS)
        entering.load(job)
        entering.enter(job, "worker-0", logs)
        if earlier:
            note = os.path.join(os.path.dirname(job), "worker-0.json")
            age(note if folders.is_stored else files.task_spec)
        written.set()
        lose.wait(30)
        return lost()

    with started_again(folders, first, 0.1):
        written.wait(5)
        # An evaluator and a parameter server join; so does a synchronous task that its cluster still waits for.
        assert training_of(find(folders)) == "this"
        if expected == "again":
            threading.Timer(0.3, lose.set).start()
        assert training_of(find(folders, in_step="worker-0")) == expected
        lose.set()


def test_a_training_that_ended_before_the_join_leaves_nothing_to_train(folders, monkeypatch):
    # For example, a parameter server that restarts after the chief has published.
    loaded = load("digits", ["trainer.distribution={train: {strategy: parameter_server, workers: 1, ps: 1}}"])
    place = tf_config.read('{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}')
    gone = iter([os.path.join(folders.root, "Trainer", "training", "this", "none", "job.json"), None])
    monkeypatch.setattr(join, "_find_job", lambda *_: next(gone))
    assert "there is nothing to train" in join._join_training(loaded, folders, place, View(Console(quiet=True)))
