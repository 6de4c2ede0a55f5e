"""The file in the shared work folder by which the tasks of an external cluster find their chief and its training.

In an object store there is no clock that all share, and no file to touch: there the chief's clock counts, the chief
rewrites its record, and the supervisor offers the job beside the checkpoints.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.pipeline.base.errors import RETRYABLE, SIGNALLED, PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import read_json, write_json
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.folders import PipelineFolders

if TYPE_CHECKING:
    from tfx_estimator.components.trainer.job import Job

RUNNING, ENDED, FAILED = "running", "ended", "failed"
# The run failed with a retryable exit code.
AGAIN = "again"
_FOLDER = "clusters"
_TRAININGS = ("Trainer", "training")
_T = TypeVar("_T")

logger = get_logger("run")


class Rendezvous:
    """One cluster's file in a folder that all tasks share; its name is a hash of the tasks' names and addresses.

    Attributes:
        silent_seconds: The chief counts as lost after this time without a heartbeat.
        beat_seconds: Between two heartbeats.
        poll_seconds: Between two looks at it.
    """

    silent_seconds, beat_seconds, poll_seconds = 60.0, 2.0, 0.2

    def __init__(self, folders: PipelineFolders, tasks: Any, declaration: str = "") -> None:
        self._of = hashlib.sha256(declaration.encode()).hexdigest()[:16]
        key = hashlib.sha256(json.dumps(tasks, sort_keys=True, default=list).encode()).hexdigest()[:16]
        self._path = os.path.join(folders.home, _FOLDER, f"{key}.json")
        self._root = os.path.join(folders.root, *_TRAININGS)

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Records that the chief runs while the context lasts, and then how it ended."""
        self._begin()
        stopped = threading.Event()
        thread = threading.Thread(target=self._beat_until, args=(stopped,), name="rendezvous", daemon=True)
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
            # The run's own error is shown.
            with contextlib.nullcontext() if state == ENDED else contextlib.suppress(Exception):
                self._write(state, 0.0)

    def read(self) -> Optional[dict[str, Any]]:
        """Returns the chief's record: `state`, `begun` (a file's time), `beat`, which changes; None without one."""
        record = read_json(self._path)
        return record and {**record, "beat": os.stat(self._path).st_mtime_ns}

    def find(self, begun: float, in_step: str = "") -> Optional[str]:
        """Returns the file of the latest job that a chief which began then has made, if any.

        Args:
            in_step: Name of this task if it trains in step: None is returned for a training that it was part of.
        """
        pattern = os.path.join(glob.escape(self._root), "*", "logs", "job-chief-0.json")
        found = [path for path in glob.glob(pattern) if os.path.getmtime(path) >= begun > 0]
        latest = max(found, key=os.path.getmtime, default=None)
        return None if latest and in_step and _was_member(os.path.dirname(latest), in_step, begun) else latest

    def is_of(self, record: dict[str, Any]) -> bool:
        """Returns whether a record's run had this declaration: after one that ended there is nothing to train."""
        return record.get("of") == self._of

    def load(self, path: str) -> Optional[Job]:
        """Reads a job that was found; None if its training has ended meanwhile."""
        from tfx_estimator.components.trainer.job import Job

        with contextlib.suppress(FileNotFoundError):
            return Job.load(path)
        return None

    def enter(self, path: str, task: str, logs: str) -> None:
        """Notes that this task is part of the training, once the cluster is complete; `logs` has its files."""
        # The files are in the folder that all tasks see.

    def _begin(self) -> None:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._write(RUNNING, 0.0)
        # Takes the time from the file system's clock, because it is compared with the times of other tasks' files.
        self._write(RUNNING, os.path.getmtime(self._path))

    def _beat(self) -> None:
        os.utime(self._path)

    def _beat_until(self, stopped: threading.Event) -> None:
        while not stopped.wait(self.beat_seconds):
            with contextlib.suppress(Exception):  # an unavailable file system or store
                self._beat()

    def _write(self, state: str, begun: float) -> None:
        write_json(self._path, {"state": state, "of": self._of, "begun": begun})


class StoredRendezvous(Rendezvous):
    """The same in an object store."""

    # A store may be away for minutes, and each look at it is a request that costs money.
    silent_seconds, beat_seconds, poll_seconds = 600.0, 10.0, 2.0
    _begun, _looked, _at, _entered = 0.0, 0.0, 0.0, False
    # None before the first look.
    _record: Optional[list[Any]] = None

    def read(self) -> Optional[dict[str, Any]]:
        """As in a folder; looks at most once in `poll_seconds`."""
        from tfx_estimator.components.files import read_json

        if time.monotonic() - self._looked >= self.poll_seconds:
            self._record = _asked(lambda: [read_json(self._path)], self._record)
            self._looked = time.monotonic()
        if self._record is None:
            error = PipelineError(
                f"{self._path} cannot be read", expected="a store that answers", todo="see the warning above; try again"
            )
            error.retryable = True
            raise error
        return self._record[0]

    def find(self, begun: float, in_step: str = "") -> Optional[str]:
        """As in a folder, by the chief's clock."""
        from tfx_estimator.components.trainer.supervisor import stored

        def ask() -> Optional[str]:
            offers = {path: at for path, at in stored.offers(self._root) if at >= begun > 0}
            latest = max(offers, key=offers.__getitem__, default=None)
            return None if latest and in_step and stored.entered(latest, in_step) == offers[latest] else latest

        return _asked(ask, None)

    def load(self, path: str) -> Optional[Job]:
        """As in a folder."""
        from tfx_estimator.components.trainer.supervisor import stored

        gone: tuple[float, Optional[Job]] = (0.0, None)
        self._at, job = _asked(lambda: stored.load(path), gone)
        return job

    def enter(self, path: str, task: str, logs: str) -> None:
        """As in a folder, for the task's next process, which may be on another machine."""
        if not self._entered and _was_member(logs, task, 0.0):
            from tfx_estimator.components.trainer.supervisor import stored

            self._entered = _asked(lambda: stored.enter(path, task, self._at), False)

    def _begin(self) -> None:
        self._begun = time.time()
        self._write(RUNNING, self._begun)

    def _beat(self) -> None:
        self._write(RUNNING, self._begun)

    def _write(self, state: str, begun: float) -> None:
        from tfx_estimator.components.files import write_whole

        record = {"state": state, "of": self._of, "begun": begun, "beat": time.time()}
        write_whole(self._path, json.dumps(record))


def meeting_of(folders: PipelineFolders, tasks: Any, declaration: str = "") -> Rendezvous:
    """Returns the rendezvous of a cluster's tasks in their common work folder; `declaration` is its JSON."""
    return (StoredRendezvous if folders.is_stored else Rendezvous)(folders, tasks, declaration)


def _asked(ask: Callable[[], _T], otherwise: _T) -> _T:
    """Returns a store's answer; if it does not answer, warns and returns the other value."""
    try:
        return ask()
    except Exception as error:  # stores raise any type
        logger.warning(f"the store does not answer: {one_line(str(error))}")
        return otherwise


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
