"""A task's events (JSON lines), its current step (a file of its own), its heartbeat, and the request to stop."""

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
    """A task's report: its time, and the fields below."""

    STARTED = "started"  # pid; the strategy exists: the cluster is complete
    RUNNING = "running"  # the user's code (a run_fn, the replica check), which reports no progress
    SCALED = "scaled"  # text: the learning rate, scaled with the number of replicas
    WARMED = "warmed"  # text: the initial weights, or how many stay as they are
    STAGED = "staged"  # text: how long the stages of a pipeline wait for each other
    # step, loss, `read_usage`; skipped_steps in float16; extra_steps of parameter servers; total in the first, if known
    STEP = "step"
    TRAINED = "trained"  # this task's part of the training is done
    WAITING = "waiting"  # an evaluator, for checkpoints
    SERVING = "serving"  # a parameter server
    EVALUATING = "evaluating"  # batches
    EVALUATED = "evaluated"  # step, metrics
    ENDED_EARLY = "ended_early"  # step; text: why training ended before its last step
    CHOSEN = "chosen"  # step and metrics of the exported checkpoint; text: the reason
    EXPORTING = "exporting"
    EXPORTED = "exported"
    TRYING = "trying"  # text: a dry run's next part
    TRIED = "tried"  # found: the result of a trial for an estimate
    NOTICED = "noticed"  # text: a warning for the user
    PROFILED = "profiled"  # text: the summary of a profile
    STOPPED = "stopped"  # by request, at a checkpoint

    @property
    def is_progress(self) -> bool:
        """True if the event itself is progress. A STEP is progress only if the step has changed."""
        return self not in (Event.STEP, Event.STOPPED)


# The stages of a task that has not begun its work.
STARTING = (None, Event.STARTED)


def stage_after(stage: Optional[Event], event: Event) -> Event:
    """Returns a task's stage: its last event, but a RUNNING task stays RUNNING after a notice."""
    return stage if stage is Event.RUNNING and event is Event.NOTICED else event


class StepCell:
    """A global step in a file: written without a system call, cheap enough for every step, and survives a kill."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Optional[int] = None
        self._map: Optional[mmap.mmap] = None

    def set(self, step: int) -> None:
        """Sets the step."""
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
                # Some file systems (FUSE, 9p) cannot share memory; there each step is written.
                self._file = os.dup(file.fileno())

    def get(self) -> int:
        """Returns the step; -1 before the first."""
        try:
            with open(self._path, "rb") as file:
                text = file.read(_STEP.size)
        except FileNotFoundError:
            return -1
        return int(_STEP.unpack(text)[0]) if len(text) == _STEP.size else -1


class ProgressWriter:
    """Appends events to the progress file, and writes the current step to `PATH.step`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._step = StepCell(f"{path}.step")

    def write(self, event: Event, **fields: Any) -> None:
        """Appends one event with its fields."""
        used = read_usage() if event is Event.STEP else {}
        line = json.dumps({"event": event.value, "time": time.time(), **used, **fields}) + "\n"
        # One write call for each line: a reader never sees half an event of a living task.
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line)

    def at(self, step: int) -> None:
        """Sets the current global step; called in every step."""
        self._step.set(step)


class ProgressReader:
    """Reads the events since the last call, and the current step."""

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
        """Returns the current global step; -1 before the first."""
        return self._step.get()


def read_usage() -> dict[str, float]:
    """Returns this process's `cpu`, user and system seconds of all threads, and `peak_rss` in bytes."""
    # getrusage's ru_maxrss would include the parent's peak, from before exec.
    return {"cpu": time.process_time(), "peak_rss": kilobytes("/proc/self/status", "VmHWM") << 10}


def kilobytes(path: str, key: str) -> int:
    """Reads a value in kB from a file such as /proc/self/status."""
    with open(path, encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{key}:"))


def beat(path: str) -> None:
    """Touches a file every second from a thread.

    A heartbeat is not progress. Its absence distinguishes a hung task from one that waits for it.
    """

    def touch_forever() -> None:
        file = pathlib.Path(path)
        while True:
            file.touch()
            time.sleep(_BEAT_SECONDS)

    threading.Thread(target=touch_forever, name="heartbeat", daemon=True).start()


class StoppedByRequestError(Exception):
    """Training stopped at the requested step, and the checkpoint is written."""


class PeerLostError(Exception):
    """A task of the same cluster has gone; all are restarted."""


def request_stop(path: str, step: int, over: bool = False) -> None:
    """Requests that all tasks stop. The first request counts: tasks may have several supervisors.

    Args:
        path: `TaskSpec.stop_file`.
        step: Global step after which a checkpoint is written and training ends.
        over: True if training is then over, and the next run does not resume it.
    """
    with contextlib.suppress(FileExistsError):
        write_whole(path, f"{step} {_OVER}" if over else str(step), new=True)


def stop_step(path: str) -> Optional[int]:
    """Returns the step to stop at; None without a request."""
    words = _read(path)
    return int(words[0]) if words else None


def is_over(path: str) -> bool:
    """Returns whether training is over at the step to stop at."""
    return _OVER in _read(path)


def _read(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except FileNotFoundError:
        return []
