"""`tfx-estimator run` in the tasks of an external cluster: the chief runs the pipeline, the others join it."""

from __future__ import annotations

import os
import time
from typing import Any, Optional

from tfx_estimator.components.trainer.protocol.task_spec import EVALUATOR
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.installed import uncollected
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.rendezvous import AGAIN, ENDED, FAILED, RUNNING, Rendezvous, meeting_of
from tfx_estimator.pipeline.run.terminal import make_console, quiet, run_context, title
from tfx_estimator.pipeline.run.view import View


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
    meeting = meeting_of(folders, place.cluster.addresses, loaded.declaration.to_json())
    with view.waiting("waiting for the chief's Trainer"):
        # Only tasks that train in step must not rejoin. A training continues without its evaluator or a parameter
        # server, and accepts it again.
        train = loaded.declaration.trainer.distribution.train
        in_step = place.task.name if train.synchronous and place.task.type != EVALUATOR else ""
        found = _find_job(meeting, folders, loaded.declaration.trainer.start_timeout, in_step)
    if found is None:
        return "the chief's run has ended: there is nothing to train"
    from tfx_estimator.components.trainer.task import light_imports

    with uncollected():
        light_imports.apply()
        from tfx_estimator.components.trainer.jobs import logs_folder, supervise

    if (job := meeting.load(found)) is None:
        # The training has ended meanwhile, and its folder is published: only the chief's end remains to be waited for.
        return _join_training(loaded, folders, place, view)
    chief = _Chief(meeting)
    with logs_folder(job.training_dir) as logs:

        def enough() -> bool:
            meeting.enter(found, place.task.name, logs)
            return chief.has_ended()

        # Parameter servers run until they are stopped.
        outcome = supervise(job, logs, enough)
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
        return time.monotonic() - self._changed > self._meeting.silent_seconds


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
    """Waits for the job of the chief's supervisor, and returns its file; None if the chief ended without one.

    Args:
        in_step: Name of this task if it trains in step. It does not rejoin a training that it was part of before its
            restart: that training has lost it and is about to end, which would cost another restart.
    """
    first = before = meeting.read()
    changed = time.monotonic()
    while True:
        record = meeting.read()
        if record != before:
            before, changed = record, time.monotonic()
        waited = time.monotonic() - changed
        # A file left by an earlier run of this cluster no longer changes; a running chief touches it.
        runs = record is not None and record["state"] == RUNNING and record != first
        if record is not None and runs and waited <= meeting.silent_seconds:
            if found := meeting.find(record["begun"], in_step):
                return found
        elif record is not None and record["state"] in (ENDED, FAILED) and (record != first or waited > timeout):
            if record["state"] == FAILED:
                raise _chief_failed()
            if record != first or meeting.is_of(record):
                return None
            # It was the run of another declaration, in a cluster of the same addresses.
            raise _no_heartbeat("did not start", folders, waited)
        elif runs or waited > timeout:
            raise _no_heartbeat("is lost" if runs else "did not start", folders, waited)
        time.sleep(meeting.poll_seconds)
