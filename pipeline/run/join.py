"""`tfx-estimator run` in the tasks of an external cluster, which find each other by a file in the shared work folder.

The chief runs the pipeline and records that in the file; the other tasks wait for its training and join it.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import EVALUATOR
from tfx_estimator.pipeline.base.errors import RETRYABLE, SIGNALLED, PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import read_json, write_json
from tfx_estimator.pipeline.base.installed import uncollected
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.terminal import make_console, quiet, run_context, title
from tfx_estimator.pipeline.run.view import View

RUNNING, ENDED, FAILED = "running", "ended", "failed"
# The run failed with a retryable exit code.
AGAIN = "again"
_BEAT_SECONDS = 2.0
_FOLDER = "clusters"
_POLL_SECONDS = 0.2
# The chief counts as lost after this time without a heartbeat.
_SILENT_SECONDS = 60.0


class Rendezvous:
    """One cluster's file in a folder that all tasks share; its name is a hash of the tasks' names and addresses."""

    def __init__(self, folders: PipelineFolders, tasks: Any) -> None:
        key = hashlib.sha256(json.dumps(tasks, sort_keys=True, default=list).encode()).hexdigest()[:16]
        self._path = os.path.join(folders.local, _FOLDER, f"{key}.json")

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Records that the chief runs while the context lasts, and then how it ended."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._write(RUNNING, 0.0)
        # Takes the time from the file system's clock, because it is compared with the times of other tasks' files.
        self._write(RUNNING, os.path.getmtime(self._path))
        stopped = threading.Event()
        thread = threading.Thread(target=self._beat, args=(stopped,), name="rendezvous", daemon=True)
        thread.start()
        state = FAILED
        try:
            yield
            state = ENDED
        except TfxEstimatorError as error:
            # A platform that restarts tasks after some exit codes also does so after a signal.
            if RETRYABLE in os.environ and (error.retryable or error.exit_code > SIGNALLED):
                state = AGAIN
            raise
        finally:
            stopped.set()
            thread.join()
            self._write(state, 0.0)

    def read(self) -> Optional[dict[str, Any]]:
        """Returns the chief's record: `state`, `begun` (a file's time) and `beat`, which changes; None without one."""
        record = read_json(self._path)
        return record and {**record, "beat": os.stat(self._path).st_mtime_ns}

    def _beat(self, stopped: threading.Event) -> None:
        while not stopped.wait(_BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def _write(self, state: str, begun: float) -> None:
        write_json(self._path, {"state": state, "begun": begun})


def join(loaded: Loaded, workdir: str, place: Any, terminal_fd: int = 1) -> int:
    """Waits for the chief's Trainer, and trains with it.

    Args:
        loaded: The validated declaration, the same as the chief's.
        workdir: Folder of all runs, the same as the chief's.
        place: This task's place in the cluster, a `TfConfig`.
        terminal_fd: See `quiet`.

    Returns:
        The exit code, 0: the chief's run or its training succeeded, or there was nothing to train.

    Raises:
        TfxEstimatorError: The chief did not start, its run failed, or this task failed.
    """
    folders = PipelineFolders(workdir, loaded.declaration.name)
    with run_context(folders, exclusive=False):
        os.makedirs(folders.logs, exist_ok=True)
        log = os.path.join(folders.logs, f"{place.task.name}.log")
        with quiet(log, terminal_fd) as terminal:
            console = make_console(terminal)
            title(console, folders.name, f"{place.task.name} of the cluster", folders.home)
            view = View(console)
            view.current = "Trainer"
            with view.explaining(log):
                message = _join_training(loaded, folders, place, view)
            console.print(message)
    return 0


def _join_training(loaded: Loaded, folders: PipelineFolders, place: Any, view: View) -> str:
    meeting = Rendezvous(folders, place.cluster.addresses)
    with view.waiting("waiting for the chief's Trainer"):
        # Only tasks that train in step must not rejoin. A training continues without its evaluator or a parameter
        # server, and accepts it again.
        train = loaded.declaration.trainer.distribution.train
        in_step = place.task.name if train.synchronous and place.task.type != EVALUATOR else ""
        job_path = _find_job(meeting, folders, loaded.declaration.trainer.start_timeout, in_step)
    if job_path is None:
        return "the chief's run has ended: there is nothing to train"
    from tfx_estimator.components.trainer.job import Job
    from tfx_estimator.components.trainer.task import light_imports

    with uncollected():
        light_imports.apply()
        from tfx_estimator.components.trainer.jobs import supervise

    chief = _Chief(meeting)
    try:
        job = Job.load(job_path)
    except FileNotFoundError:
        # The training has ended meanwhile, and its folder is published: only the chief's end remains to be waited for.
        return _join_training(loaded, folders, place, view)
    # Parameter servers run until they are stopped.
    outcome = supervise(job, os.path.dirname(job_path), enough=chief.has_ended)
    chief.check(folders)
    steps = "" if outcome.last_step is None else f": steps {outcome.first_step} to {outcome.last_step}"
    return f"{place.task.name} has ended{steps}"


class _Chief:
    """State of the chief's run, watched while this task runs."""

    def __init__(self, meeting: Rendezvous) -> None:
        self._meeting = meeting
        self._record: Any = None
        self._changed = time.monotonic()

    def has_ended(self) -> bool:
        """Returns whether the run has ended, or its heartbeat has."""
        record = self._meeting.read()
        if record != self._record:
            self._record, self._changed = record, time.monotonic()
        return record is not None and (record["state"] != RUNNING or self._is_silent())

    def check(self, folders: PipelineFolders) -> None:
        """Raises if the run failed or the chief is lost; the platform then restarts all tasks, or none."""
        if self.has_ended() and self._record["state"] in (FAILED, AGAIN):
            raise _chief_failed()
        if self._is_silent():
            raise _no_heartbeat("is lost", folders, time.monotonic() - self._changed)

    def _is_silent(self) -> bool:
        return time.monotonic() - self._changed > _SILENT_SECONDS


def _chief_failed() -> PipelineError:
    return _chief_error(
        "the chief's run of this cluster failed", expected="a run that ends", todo="see the chief's output"
    )


def _no_heartbeat(what: str, folders: PipelineFolders, seconds: float) -> PipelineError:
    return _chief_error(
        f"the chief of this cluster {what}: no heartbeat in {folders.home} for {seconds:.0f} s",
        expected="`tfx-estimator run` of the same declaration, in the same --workdir, in each task",
        todo="see the chief's output; raise trainer.start_timeout; or unset TF_CONFIG if this is no task of a cluster",
    )


def _chief_error(what: str, expected: str, todo: str) -> PipelineError:
    """Returns a retryable error: the chief's exit code decides whether the job has failed."""
    error = PipelineError(what, expected=expected, todo=todo)
    error.retryable = True
    return error


def _find_job(meeting: Rendezvous, folders: PipelineFolders, timeout: float, in_step: str = "") -> Optional[str]:
    """Waits for the job file of the chief's supervisor; None if the chief ended without one.

    Args:
        in_step: Name of this task if it trains in step. It does not rejoin a training that it was part of before its
            restart: that training has lost it and is about to end, which would cost another restart.
    """
    pattern = os.path.join(glob.escape(folders.root), "Trainer", "training", "*", "logs", "job-chief-0.json")
    first = before = meeting.read()
    changed = time.monotonic()
    while True:
        record = meeting.read()
        if record != before:
            before, changed = record, time.monotonic()
        waited = time.monotonic() - changed
        # A file left by an earlier run of this cluster no longer changes; a running chief touches it.
        runs = record is not None and record["state"] == RUNNING and record != first
        if record is not None and runs and waited <= _SILENT_SECONDS:
            found = [path for path in glob.glob(pattern) if os.path.getmtime(path) >= record["begun"] > 0]
            latest = max(found, key=os.path.getmtime, default=None)
            if latest and not (in_step and _was_member(os.path.dirname(latest), in_step, record["begun"])):
                return latest
        elif record is not None and record["state"] in (ENDED, FAILED) and (record != first or waited > timeout):
            if record["state"] == ENDED:
                return None
            raise _chief_failed()
        elif runs or waited > timeout:
            raise _no_heartbeat("is lost" if runs else "did not start", folders, waited)
        time.sleep(_POLL_SECONDS)


def _was_member(logs: str, task: str, since: float) -> bool:
    """Returns whether a task of this name, started since then, was in the complete cluster."""
    for started in glob.glob(os.path.join(glob.escape(logs), f"{task}.attempt-*.task.json")):
        with contextlib.suppress(OSError):
            # Compares the time when the task started: a task of the chief's previous run may have written its last
            # event since then.
            if os.path.getmtime(started) >= since:
                with open(f"{started.removesuffix('task.json')}progress.jsonl", encoding="utf-8") as file:
                    events = file.read()
                # A run_fn reports RUNNING when its strategy is made.
                if any(f'"{event.value}"' in events for event in (Event.STARTED, Event.RUNNING)):
                    return True
    return False
