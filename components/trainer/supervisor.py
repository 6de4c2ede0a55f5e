"""Supervises training tasks: fresh processes, logs, progress, deadlines, and the real error when one fails.

The contract: a wait has a deadline, a child does not outlive its parent, and an error names the task, what it said and
where its log is. (One task here; the words are torchrun's: https://docs.pytorch.org/docs/stable/elastic/run.html.)
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

from components.trainer.job import Job, TaskFiles
from components.trainer.outcome import Outcome
from components.trainer.progress import ProgressReader
from pipeline import errors
from pipeline.config.trainer import TrainerSection

_PROJECT = str(Path(__file__).resolve().parents[2])
# Not `-m`, which puts the current folder first: a user's own `data.py` there would hide the project's `data`.
_TASK = (
    f"import sys; sys.path[0] = {_PROJECT!r}; from components.trainer import task; sys.exit(task.main(sys.argv[1:]))"
)
_POLL_SECONDS = 0.1
_LOG_LINES = 15

logger = logging.getLogger("tfx_estimator.trainer")


class Supervisor:
    """Starts the tasks of one training and waits for their end.

    Args:
        job: What to train.
        logs: Local folder for the tasks' files.
    """

    def __init__(self, job: Job, logs: str) -> None:
        self._job = job
        self._files = TaskFiles(logs, "chief-0", _next_attempt(logs))
        self._watch = _Watch(job, self._files)

    def run(self) -> Outcome:
        """Trains.

        Returns:
            What the training came to.

        Raises:
            TaskFailedError: The task ended with an error; or the error of this project that the task itself raised.
            TaskStalledError: The task missed a deadline.
        """
        path = os.path.join(self._files.folder, "job.json")
        self._job.save(path)
        with open(self._files.log, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _TASK, path, self._files.task, str(self._files.attempt)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(self._job.settings.trainer),
                # Ctrl-C is for the supervisor, which then ends its tasks.
                start_new_session=True,
            )
        try:
            while process.poll() is None:
                self._watch.look()
                time.sleep(_POLL_SECONDS)
            self._watch.look()
        finally:
            _kill(process)
        if process.returncode:
            raise self._failure(process.returncode)
        return self._watch.outcome()

    def _failure(self, code: int) -> errors.TfxEstimatorError:
        """The task's own error, or what its log ends with."""
        if os.path.exists(self._files.error):
            with open(self._files.error, encoding="utf-8") as file:
                said: dict[str, Any] = json.load(file)
            kind = getattr(errors, said["type"], None)
            if isinstance(kind, type) and issubclass(kind, errors.TfxEstimatorError):
                return kind(said["what"], expected=said["expected"], todo=said["todo"] or f"see {self._files.log}")
            return errors.TaskFailedError(
                f"task {self._files.task} failed: {said['type']}: {said['what']}\n{said['where']}",
                todo=f"mend the code above, or see the whole log: {self._files.log}",
            )
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return errors.TaskFailedError(
            f"task {self._files.task} {how}; its log ends with:\n{_tail(self._files.log)}",
            todo=f"see the whole log: {self._files.log}; the next run resumes from the last checkpoint",
        )


class _Watch:
    """Reads the task's progress, passes it on, and knows the deadlines."""

    def __init__(self, job: Job, files: TaskFiles) -> None:
        self._settings = job.settings
        self._files = files
        self._reader = ProgressReader(files.progress)
        self._started = time.monotonic()
        self._alive = self._started
        self._log_size = 0
        self._seen: Optional[str] = None
        self._steps: list[tuple[float, int]] = []
        self._metrics: dict[str, float] = {}
        section = self._settings.trainer
        self._batch = section.global_batch_size if section else 0
        self._total = section.train_steps if section else _num_steps(job)

    def look(self) -> None:
        """Passes on what is new.

        Raises:
            TaskStalledError: A deadline has passed.
        """
        events = self._reader.read()
        for event in events:
            self._take(event)
        size = os.path.getsize(self._files.log)
        now = time.monotonic()
        # A run_fn reports nothing of its own: that its log grows counts as life.
        if events or (self._seen == "running" and size != self._log_size):
            self._alive = now
        self._log_size = size
        waited, limit, name = now - self._alive, self._settings.stall_timeout, "stall_timeout"
        if self._seen in (None, "started"):
            waited, limit, name = now - self._started, self._settings.start_timeout, "start_timeout"
        if waited > limit:
            said = _tail(self._files.log)
            raise errors.TaskStalledError(
                f"task {self._files.task} made no progress for {waited:.0f} s; its log ends with:\n{said}",
                expected=f"progress within {limit:g} s (trainer.{name})",
                todo=f"raise trainer.{name}, or see the whole log: {self._files.log}",
            )

    def outcome(self) -> Outcome:
        """Sums up."""
        first = self._steps[0] if self._steps else (0.0, 0)
        last = self._steps[-1] if self._steps else (0.0, 0)
        seconds = time.monotonic() - self._started
        return Outcome(first[1], last[1], seconds, self._rate(first, last), self._metrics)

    def _take(self, event: dict[str, Any]) -> None:
        self._seen = event["event"]
        if self._seen == "step":
            self._steps.append((event["time"], event["step"]))
            rate = self._rate(self._steps[-10:][0], self._steps[-1])
            event = {**event, "total": self._total, "examples_per_second": rate}
            loss = f", loss {event['loss']:.4f}" if "loss" in event else ""
            speed = f", {rate:,.0f} examples/s" if rate else ""
            message = f"step {event['step']}/{self._total or '?'}{loss}{speed}"
        elif self._seen == "evaluated":
            self._metrics = event["metrics"]
            # An earlier run may have done all steps.
            self._steps = self._steps or [(event["time"], event["step"])]
            message = "evaluation: " + ", ".join(f"{name} {value:.4f}" for name, value in self._metrics.items())
        else:
            message = str(self._seen)
        logger.info(message, extra={"progress": event})

    def _rate(self, first: tuple[float, int], last: tuple[float, int]) -> float:
        """Examples per second between two reports."""
        seconds = last[0] - first[0]
        return (last[1] - first[1]) * self._batch / seconds if seconds > 0 else 0.0


def _num_steps(job: Job) -> Optional[int]:
    """`train_args.num_steps` of a Trainer without a declaration."""
    steps = json.loads(job.exec_properties.get("train_args") or "{}")
    value = steps.get("num_steps") or steps.get("numSteps")
    return int(value) if value else None


def _next_attempt(logs: str) -> int:
    """Attempts are counted over all runs that share the training folder, so no log is overwritten."""
    return 1 + sum(name.endswith(".log") for name in os.listdir(logs))


def _environment(section: Optional[TrainerSection]) -> dict[str, str]:
    """The parent's, with what the parent can import, and the declared threads."""
    paths = [path or os.getcwd() for path in sys.path]
    # A cluster of somebody else's: an Estimator would wait for it.
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    if section and section.intra_op_threads:
        # A session's own setting comes too late for the pool of threads that the process shares.
        inherited["TF_NUM_INTRAOP_THREADS"] = str(section.intra_op_threads)
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1"),
    }


def _kill(process: subprocess.Popen) -> None:
    """Ends a task and whatever it started, for good. SIGTERM would be swallowed by multi-worker tasks."""
    # Also after its end: what it started is in its group.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()[-_LOG_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"
