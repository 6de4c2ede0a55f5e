"""How a task tells of its progress, one JSON object a line in a file, and each step in another; and is told to stop."""

from __future__ import annotations

import contextlib
import enum
import json
import mmap
import os
import pathlib
import struct
import threading
import time
from typing import Any, Optional

from tfx_estimator.pipeline.base.files import write_whole

_BEAT_SECONDS = 1.0
_STEP = struct.Struct("<q")
# sysexits.h's EX_TEMPFAIL: the exit code of a task that stopped by request, at a checkpoint.
STOPPED = 75
_OVER = "over"


class Event(str, enum.Enum):
    """What a task reports; with it come the time and the fields that are named here."""

    STARTED = "started"  # pid; the strategy is made: the cluster is complete
    RUNNING = "running"  # the user's code runs, and reports nothing by itself
    SCALED = "scaled"  # text: the learning rate that is scaled with the number of replicas
    WARMED = "warmed"  # text: the weights that training begins with
    STAGED = "staged"  # text: how long the stages of a pipeline wait for each other
    # step, loss, `read_usage`; skipped_steps in float16; extra_steps of parameter servers; the first also the total, if
    # there is one
    STEP = "step"
    TRAINED = "trained"  # this task's part of the training is done
    WAITING = "waiting"  # an evaluator, for checkpoints
    SERVING = "serving"  # a parameter server
    EVALUATING = "evaluating"  # batches
    EVALUATED = "evaluated"  # step, metrics
    ENDED_EARLY = "ended_early"  # step; text: why training was over before its last step
    CHOSEN = "chosen"  # step and metrics of the checkpoint that is exported; text: why that one
    EXPORTING = "exporting"
    EXPORTED = "exported"
    TRYING = "trying"  # text: what a dry run does next
    TRIED = "tried"  # found: what a trial for an estimate has found
    NOTICED = "noticed"  # text: what the user should know
    PROFILED = "profiled"  # text: the summary of a profile
    STOPPED = "stopped"  # by request, at a checkpoint

    @property
    def is_progress(self) -> bool:
        """Is the event progress in itself. A step is progress only if it has grown."""
        return self not in (Event.STEP, Event.STOPPED)


# A task whose last event is one of these has not begun its work.
NOT_AT_WORK = (None, Event.STARTED)


def stage_after(stage: Optional[Event], event: Event) -> Event:
    """Returns what a task is at: a run_fn that runs goes on after a notice, and still reports nothing of its own."""
    return stage if stage is Event.RUNNING and event is Event.NOTICED else event


class StepCell:
    """A global step in a file: set without a system call, so in every step, and kept when its process is killed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Optional[int] = None
        self._map: Optional[mmap.mmap] = None

    def set(self, step: int) -> None:
        """Keeps a step."""
        if self._map is not None:
            _STEP.pack_into(self._map, 0, step)
        elif self._file is not None:
            os.pwrite(self._file, _STEP.pack(step), 0)
        else:
            self._begin(step)

    def _begin(self, step: int) -> None:
        with open(self._path, "w+b") as file:
            file.write(_STEP.pack(step))
            file.flush()
            try:
                self._map = mmap.mmap(file.fileno(), _STEP.size)
            except (OSError, ValueError):
                # Some file systems (FUSE, 9p) cannot share memory. There each step is written.
                self._file = os.dup(file.fileno())

    def get(self) -> int:
        """Returns the step that was set last; -1 before the first."""
        try:
            with open(self._path, "rb") as file:
                text = file.read(_STEP.size)
        except FileNotFoundError:
            return -1
        return int(_STEP.unpack(text)[0]) if len(text) == _STEP.size else -1


class ProgressWriter:
    """Appends events to the progress file, and keeps the present step in one beside it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._step = StepCell(f"{path}.step")

    def write(self, event: Event, **fields: Any) -> None:
        """Appends one event, with what belongs to it."""
        used = read_usage() if event is Event.STEP else {}
        line = json.dumps({"event": event.value, "time": time.time(), **used, **fields}) + "\n"
        # A line is written by one call, so that a reader never sees half an event of a living task.
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line)

    def at(self, step: int) -> None:
        """Notes the global step that is done; for every step."""
        self._step.set(step)


class ProgressReader:
    """Reads the events that are new since the last call, and the present step."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._step = StepCell(f"{path}.step")
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Returns the new events, oldest first."""
        if not os.path.exists(self._path):
            return []
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = [json.loads(line) for line in whole.splitlines()]
        return [{**each, "event": Event(each["event"])} for each in events]

    def step(self) -> int:
        """Returns the global step that was done last; -1 before the first."""
        return self._step.get()


def read_usage() -> dict[str, float]:
    """Returns `cpu`, the seconds of all its threads, user and system; and `peak_rss`, its largest memory in bytes."""
    # getrusage's ru_maxrss would include the parent's peak, from before exec.
    return {"cpu": time.process_time(), "peak_rss": kilobytes("/proc/self/status", "VmHWM") << 10}


def kilobytes(path: str, key: str) -> int:
    """Reads a value of one of the kernel's files about this process."""
    with open(path, encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{key}:"))


def beat(path: str) -> None:
    """Touches a file every second, from a thread, as long as the process runs and is not stopped.

    A heartbeat is not progress. A missing one tells a stopped task from one that waits for it.
    """

    def go_on() -> None:
        file = pathlib.Path(path)
        while True:
            file.touch()
            time.sleep(_BEAT_SECONDS)

    threading.Thread(target=go_on, name="heartbeat", daemon=True).start()


class StoppedByRequestError(Exception):
    """Training stopped at the step that the supervisor asked for, and the checkpoint is written."""


class PeerLostError(Exception):
    """A task of the same cluster has gone; all are restarted."""


def ask_to_stop(path: str, step: int, over: bool = False) -> None:
    """Tells all tasks to stop at a global step. The first word counts: tasks may have several supervisors.

    Args:
        path: `TaskSpec.stop_file`.
        step: After which a checkpoint is written and training ends.
        over: Is training then over, and not to go on in the next run.
    """
    with contextlib.suppress(FileExistsError):
        write_whole(path, f"{step} {_OVER}" if over else str(step), new=True)


def asked_to_stop(path: str) -> Optional[int]:
    """The step to stop at; None as long as nobody asked."""
    words = _read(path)
    return int(words[0]) if words else None


def is_over(path: str) -> bool:
    """Tells whether training is over at the step to stop at."""
    return _OVER in _read(path)


def _read(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except FileNotFoundError:
        return []
