"""`tfx-estimator run` in the tasks of somebody else's cluster: they meet by a file in the work folder that they share.

The chief runs the pipeline, and says there that it does; the others wait for its training, and take their place in it.
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
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.base.installed import uncollected
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.terminal import in_order, make_console, quiet, title
from tfx_estimator.pipeline.run.view import View

RUNNING, ENDED, FAILED = "running", "ended", "failed"
# The run failed, and its exit code asks for another start.
AGAIN = "again"
_BEAT_SECONDS = 2.0
_FOLDER = "clusters"
_POLL_SECONDS = 0.2
# Longest time without a sign of the chief's life.
_SILENT_SECONDS = 60.0


class Rendezvous:
    """The file of one cluster, in a folder that all tasks share; their names and addresses tell it from others."""

    def __init__(self, folders: PipelineFolders, tasks: Any) -> None:
        key = hashlib.sha256(json.dumps(tasks, sort_keys=True, default=list).encode()).hexdigest()[:16]
        self._path = os.path.join(folders.local, _FOLDER, f"{key}.json")

    @contextlib.contextmanager
    def led(self) -> Iterator[None]:
        """Says, as long as the context lasts, that the chief runs; and afterwards how it ended."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._write(RUNNING, 0.0)
        # Takes the time from the file system's clock, because it is compared with the times of other tasks' files.
        self._write(RUNNING, os.path.getmtime(self._path))
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over,), name="rendezvous", daemon=True)
        thread.start()
        state = FAILED
        try:
            yield
            state = ENDED
        except TfxEstimatorError as error:
            # Whatever restarts tasks after some exit codes also does so after a signal.
            if RETRYABLE in os.environ and (error.retryable or error.exit_code > SIGNALLED):
                state = AGAIN
            raise
        finally:
            over.set()
            thread.join()
            self._write(state, 0.0)

    def read(self) -> Optional[dict[str, Any]]:
        """Returns what the chief says: `state`, `begun` (a file's time), and a `beat` that changes; or None."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return {**json.load(file), "beat": os.fstat(file.fileno()).st_mtime_ns}
        except (FileNotFoundError, ValueError):
            return None

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(_BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def _write(self, state: str, begun: float) -> None:
        write_json(self._path, {"state": state, "begun": begun})


def join(loaded: Loaded, workdir: str, place: Any, terminal_fd: int = 1) -> int:
    """Waits for the chief's Trainer, and trains with it.

    Args:
        loaded: The validated declaration: the chief's.
        workdir: Folder of all runs: the chief's.
        place: This task's place in the cluster, a `TfConfig`.
        terminal_fd: As of `quiet`.

    Returns:
        The exit code, 0: the chief's run ended well, or its training did, or it had nothing to train.

    Raises:
        TfxEstimatorError: The chief did not come, its run failed, or this task did.
    """
    folders = PipelineFolders(workdir, loaded.declaration.name)
    with in_order(folders, alone=False):
        os.makedirs(folders.logs, exist_ok=True)
        log = os.path.join(folders.logs, f"{place.task.name}.log")
        with quiet(log, terminal_fd) as terminal:
            console = make_console(terminal)
            title(console, folders.name, f"{place.task.name} of the cluster", folders.home)
            view = View(console)
            view.current = "Trainer"
            with view.explaining(log):
                said = _take_part(loaded, folders, place, view)
            console.print(said)
    return 0


def _take_part(loaded: Loaded, folders: PipelineFolders, place: Any, view: View) -> str:
    meeting = Rendezvous(folders, place.cluster.addresses)
    with view.waiting("waiting for the chief's Trainer"):
        # Only tasks that train in step must not rejoin. A training that goes on without its evaluator or a parameter
        # server takes it back.
        train = loaded.declaration.trainer.distribution.train
        in_step = place.task.name if train.synchronous and place.task.type != EVALUATOR else ""
        job_path = _find_job(meeting, folders, loaded.declaration.trainer.start_timeout, in_step)
    if job_path is None:
        return "the chief's run has ended, and left nothing to train"
    from tfx_estimator.components.trainer.job import Job
    from tfx_estimator.components.trainer.task import light_imports

    with uncollected():
        light_imports.apply()
        from tfx_estimator.components.trainer.jobs import supervise

    chief = _Chief(meeting)
    try:
        job = Job.load(job_path)
    except FileNotFoundError:
        # The training has ended meanwhile, and its folder is published: what is left is to wait for the chief's end.
        return _take_part(loaded, folders, place, view)
    # Parameter servers do not end by themselves.
    outcome = supervise(job, os.path.dirname(job_path), enough=chief.has_ended)
    chief.check(folders)
    steps = "" if outcome.last_step is None else f": steps {outcome.first_step} to {outcome.last_step}"
    return f"{place.task.name} has done its part{steps}"


class _Chief:
    """What is seen of the chief's run while this task is at work."""

    def __init__(self, meeting: Rendezvous) -> None:
        self._meeting = meeting
        self._said: Any = None
        self._changed = time.monotonic()

    def has_ended(self) -> bool:
        """Has it ended, or gone without a word."""
        said = self._meeting.read()
        if said != self._said:
            self._said, self._changed = said, time.monotonic()
        return said is not None and (said["state"] != RUNNING or self._is_silent())

    def check(self, folders: PipelineFolders) -> None:
        """Raises if it failed: whoever started the tasks starts all again, or none."""
        if self.has_ended() and self._said["state"] in (FAILED, AGAIN):
            raise _chief_failed()
        if self._is_silent():
            raise _nothing_seen("has gone", folders, time.monotonic() - self._changed)

    def _is_silent(self) -> bool:
        return time.monotonic() - self._changed > _SILENT_SECONDS


def _chief_failed() -> PipelineError:
    return _of_the_chief(
        "the chief's run of this cluster failed", expected="a run that ends", todo="see the chief's output"
    )


def _nothing_seen(what: str, folders: PipelineFolders, seconds: float) -> PipelineError:
    return _of_the_chief(
        f"the chief of this cluster {what}: nothing of its run was seen in {folders.home} for {seconds:.0f} s",
        expected="`tfx-estimator run` of the same declaration, in the same --workdir, in each task",
        todo="see the chief's output; raise trainer.start_timeout; or unset TF_CONFIG if this is no task of a cluster",
    )


def _of_the_chief(what: str, expected: str, todo: str) -> PipelineError:
    """No error of this task: whether all is over, the chief's own end says."""
    error = PipelineError(what, expected=expected, todo=todo)
    error.retryable = True
    return error


def _find_job(meeting: Rendezvous, folders: PipelineFolders, timeout: float, in_step: str = "") -> Optional[str]:
    """The file that the chief's supervisor writes for all tasks; None if the chief ended without one.

    A task that trains in step, whose name is given, does not join what it was a part of before it was started again:
    that training has lost it and is about to end, and would cost it another start.
    """
    pattern = os.path.join(glob.escape(folders.root), "Trainer", "training", "*", "logs", "job-chief-0.json")
    first = before = meeting.read()
    changed = time.monotonic()
    while True:
        said = meeting.read()
        if said != before:
            before, changed = said, time.monotonic()
        waited = time.monotonic() - changed
        # A file that an earlier run of this cluster left does not change any more; a living chief touches it.
        lives = said is not None and said["state"] == RUNNING and said != first
        if said is not None and lives and waited <= _SILENT_SECONDS:
            found = [path for path in glob.glob(pattern) if os.path.getmtime(path) >= said["begun"] > 0]
            latest = max(found, key=os.path.getmtime, default=None)
            if latest and not (in_step and _took_part(os.path.dirname(latest), in_step, said["begun"])):
                return latest
        elif said is not None and said["state"] in (ENDED, FAILED) and (said != first or waited > timeout):
            if said["state"] == ENDED:
                return None
            raise _chief_failed()
        elif lives or waited > timeout:
            raise _nothing_seen("has gone" if lives else "did not come", folders, waited)
        time.sleep(_POLL_SECONDS)


def _took_part(logs: str, task: str, since: float) -> bool:
    """Was a task of this name, which began since then, in the complete cluster."""
    for begun in glob.glob(os.path.join(glob.escape(logs), f"{task}.attempt-*.task.json")):
        with contextlib.suppress(OSError):
            # Compares the time when the task began. A task of the chief's previous life may have written its last event
            # since then.
            if os.path.getmtime(begun) >= since:
                with open(f"{begun.removesuffix('task.json')}progress.jsonl", encoding="utf-8") as file:
                    said = file.read()
                # A run_fn reports RUNNING when its strategy is made.
                if any(f'"{event.value}"' in said for event in (Event.STARTED, Event.RUNNING)):
                    return True
    return False
