"""Dry run: tries the user's code in a separate process, on made-up examples, before any data is ingested.

A mistake in a model_fn then shows after seconds, not minutes. The process may exit, hang or end in any state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional

from tfx_estimator import __version__
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import COSTS, DRY_RUN, TaskSpec
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor.process import TaskProcess
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.files import read_json, write_json
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.known import names_of
from tfx_estimator.pipeline.config.table import is_here
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.user_source.faults import read_stack_now
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_meaning

_POLL_SECONDS = 0.05
_MOST_SECONDS = 300.0
# Without an event, while the user's Python code runs; also the minimum where no stack is known.
_QUIET_SECONDS = 60.0
# Sent from outside, for example by the OOM killer; other signals come from the code itself.
_MACHINE_SIGNALS = (signal.SIGKILL, signal.SIGTERM)
# Native code crashed: a TensorFlow thread, or an operation that the user's code called.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_FILE = "dry_run.json"
_REMEMBERED = 50
# The machine's fault, unless a frame of the user's code is in the stack.
_MACHINE_ERRORS = ("OSError", "MemoryError", "ResourceExhaustedError", "PermissionError", "TrainingError")
# The sections that decide a dry run's result, and their options that do not: which examples, how long, what is written.
_SECTIONS = ("data", "transform", "evaluator", "tune", "trainer")
_IGNORED = {
    "data": ("splits", "shards", "download"),
    "trainer": (
        *("train_steps", "train_epochs", "eval_steps", "seed", "save_checkpoints_steps", "keep_checkpoint_max"),
        *("log_every_steps", "start_timeout", "stall_timeout", "shuffle_buffer", "resident_megabytes"),
    ),
}

logger = get_logger("dry_run")


class InconclusiveError(errors.TaskFailedError):
    """The dry run failed for a reason outside the user's code."""


@dataclasses.dataclass(frozen=True)
class DryRunResult:
    """Result of a dry run that succeeded.

    Args:
        parts: The steps that ran, in order.
        seconds: Wall time since the process started.
        found: Result of an estimate.
    """

    parts: tuple[str, ...]
    seconds: float
    found: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{'; '.join(self.parts)} ({self.seconds:.1f} s)"


class DryRun:
    """A dry run in a running process.

    Args:
        logs: Folder for the process's log.
        folder: The process's work folder.
        log_stays: Whether the log is kept, so that messages may name it.
        path: The job's path: empty tries the code, COSTS only builds a step and returns its costs.
    """

    def __init__(self, loaded: Loaded, logs: str, folder: str, log_stays: bool, path: str = "") -> None:
        trainer = loaded.declaration.trainer
        self._timeout = min(max(_QUIET_SECONDS, min(trainer.start_timeout, trainer.stall_timeout)), _MOST_SECONDS)
        loaded.make_importable()
        self._settings = Settings(declaration=json.loads(loaded.declaration.to_json()))
        self._logs, self._folder, self._path, self._environment = logs, folder, path, trainer.environment
        self._log_stays = log_stays
        self._process = self._start(attempt=1)
        self._crashed = False
        self._parts: list[str] = []
        self._done: Optional[float] = None
        self._estimates = path == COSTS
        self._name = "the estimate" if self._estimates else "the dry run"
        self._found: dict[str, Any] = {}
        self._last_event = self._process.started

    def wait(self) -> DryRunResult:
        """Waits until the dry run has ended; raises what went wrong."""
        while (code := self._process.code) is None:
            self._read_events()
            if self._done is not None:
                # Does not wait for threads that the user's code left running: they may never end.
                break
            self._check_deadlines(time.monotonic())
            time.sleep(_POLL_SECONDS)
        self._read_events()
        if record := self._process.error():
            raise self._to_error(record)
        if self._done is not None:
            # The first part is the data set's.
            return DryRunResult(tuple(self._parts[1:]), self._done, self._found)
        assert code is not None
        if -code in _MACHINE_SIGNALS:
            raise InconclusiveError(
                f"{self._title()} was ended by signal {-code}; its log ends with:\n{self._process.tail()}",
                expected="enough memory for a step",
                todo=f"try it again{self._or_see}",
            )
        what = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended, with exit code {code}"
        lines = self._process.users_frames()
        if -code in _CRASHES and not lines and not self._crashed:
            # TensorFlow crashes like this once in several hundred runs, and a second attempt succeeds.
            self._crashed, self._parts = True, []
            # If only the process's keeper crashed, its children still run.
            self._process.kill()
            self._process = self._start(attempt=2)
            self._last_event = self._process.started
            return self.wait()
        if -code in _CRASHES and not lines:
            raise InconclusiveError(
                f"{self._title()} {what}, and no line of your code was running; {self._at_work(lines)}",
                expected="a process that exits normally",
                todo=f"try it again; if it crashes again, look for what TensorFlow cannot do{self._or_see}",
            )
        raise errors.UserCodeError(
            f"{self._title()} {what}; {self._at_work(lines)}",
            expected="code that returns, or raises an error",
            todo=f"fix the code that ends the process{self._or_see}",
        )

    def _start(self, attempt: int) -> TaskProcess:
        folder = os.path.join(self._folder, f"attempt-{attempt}")
        os.makedirs(folder)
        os.makedirs(self._logs, exist_ok=True)
        job_path = os.path.join(self._logs, "job.json")
        Job("{}", "{}", {}, folder, self._settings, self._path).save(job_path)
        task = TaskSpec(DRY_RUN, 0, attempt, supervisor_pid=os.getpid())
        return TaskProcess(job_path, task, folder, self._environment)

    def end(self) -> None:
        """Kills the process and its children."""
        self._process.kill()

    def _check_deadlines(self, now: float) -> None:
        quiet, total = now - self._last_event, now - self._process.started
        late = quiet > self._timeout or total > _MOST_SECONDS
        # A loaded machine gets more time.
        slow = max(os.getloadavg()[0] / (os.cpu_count() or 1), 1)
        lines = read_stack_now(self._process.files.stacks) if late or quiet > _QUIET_SECONDS * slow else []
        if not lines and not late:
            return
        what = f"did not end within {total:.0f} s" if total > _MOST_SECONDS else f"made no progress for {quiet:.0f} s"
        parts, way_out = "a step, an evaluation and an export", ", or run with --no-dry-run"
        if self._estimates:
            parts, way_out = "a step that is built", ""
        raise errors.UserCodeError(
            f"{self._title()} {what}; {self._at_work(lines)}",
            expected=f"{parts} in {_MOST_SECONDS:g} s",
            todo=f"fix the code that does not end{way_out}{self._or_see}",
        )

    def _at_work(self, lines: list[str]) -> str:
        if lines:
            return "your code was running:\n" + "\n".join(lines)
        return f"its log ends with:\n{self._process.tail()}"

    def _read_events(self) -> None:
        for event in self._process.events():
            self._last_event = time.monotonic()
            if event["event"] is Event.TRYING:
                self._parts.append(event["text"])
            elif event["event"] is Event.TRIED:
                self._found = event.get("found", {})
                self._done = time.monotonic() - self._process.started

    @property
    def _or_see(self) -> str:
        return f", or see {self._process.files.log}" if self._log_stays else ""

    def _title(self) -> str:
        return f"{self._name} ({self._parts[-1] if self._parts else 'its start'})"

    def _to_error(self, record: dict[str, Any]) -> errors.TfxEstimatorError:
        """Returns the exception for an error that the process recorded."""
        if (error := errors.from_json(record)) is not None:
            # In a dry run, a failed export is the user code's fault.
            users = isinstance(error, errors.TrainingError)
            return errors.UserCodeError(error.what, expected=error.expected, todo=error.todo) if users else error
        message = f"{self._title()} failed: {record['type']}: {record['what']}\n{record['where']}"
        if not record["todo"] and record["type"] in _MACHINE_ERRORS:
            return InconclusiveError(message, todo=f"try it again{self._or_see}")
        return errors.UserCodeError(message, todo=(record["todo"] or "fix the error above") + self._or_see)


@contextlib.contextmanager
def begin(loaded: Loaded, logs: Optional[str] = None, path: str = "") -> Iterator[DryRun]:
    """Starts a dry run; kills it when the context exits."""
    with scratch.made() as home:
        folder = tempfile.mkdtemp(dir=home)
        try:
            trial = DryRun(loaded, logs or os.path.join(folder, "logs"), folder, log_stays=logs is not None, path=path)
            try:
                yield trial
            finally:
                trial.end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class Memory:
    """Record of the code that passed a dry run before, in a pipeline's folder."""

    def __init__(self, loaded: Loaded, folders: PipelineFolders) -> None:
        self._loaded = loaded
        self._path = os.path.join(folders.local, _FILE)

    def knows(self) -> bool:
        """Returns whether none is needed: the code is built in, or passed before; or no row of the table is here."""
        declaration = self._loaded.declaration
        if declaration.data.is_table and not is_here(declaration.data):
            return True
        trainer, of_table = declaration.trainer, declaration.data.is_table
        transform = declaration.transform.of_table() if of_table else declaration.transform
        # With these a built-in model can fail as well, for example by a wrong layer name or other weights.
        customized = trainer.params or trainer.is_divided or trainer.warm_start
        built_in = trainer.model in names_of("trainer.model", of_table) and not customized
        if built_in and transform.target in names_of("transform.preprocessing_fn", of_table).values():
            return True
        return self._key() in self._passed()

    def remember(self) -> None:
        """Records that the code passed."""
        passed = [key for key in self._passed() if key != self._key()]
        with contextlib.suppress(OSError):  # the next run repeats the dry run
            write_json(self._path, [*passed, self._key()][-_REMEMBERED:])

    def _passed(self) -> list[str]:
        with contextlib.suppress(OSError):
            return read_json(self._path, list) or []
        return []

    def _key(self) -> str:
        declaration = self._loaded.declaration
        trainer = declaration.trainer
        sections = {name: section or {} for name, section in declaration.dict().items() if name in _SECTIONS}
        options = {
            name: {key: _shape(value) for key, value in section.items() if key not in _IGNORED.get(name, ())}
            for name, section in sections.items()
        }
        sources = fingerprint_meaning([trainer.target, declaration.transform.target], self._loaded.search_paths)
        weights = trainer.warm_start.fingerprint() if trainer.warm_start else ""
        versions = [stacks.current().extra, __version__]
        return hashlib.sha256(json.dumps([versions, sources, weights, options], sort_keys=True).encode()).hexdigest()


def _shape(value: Any) -> Any:
    """Returns a value without the size of its rates (floats between 0 and 1), which seldom decides a shape."""
    if isinstance(value, float) and 0 < value < 1:
        return "a rate"
    if isinstance(value, Mapping):
        return {key: _shape(each) for key, each in value.items()}
    return [_shape(each) for each in value] if isinstance(value, (list, tuple)) else value


@contextlib.contextmanager
def in_background(
    loaded: Loaded, folders: PipelineFolders, logs: str, wanted: bool = True
) -> Iterator[Callable[[], Optional[DryRunResult]]]:
    """Starts a run's dry run, unless the code passed before; kills it when the context exits.

    Yields:
        A function that waits for the result; it returns None without one. It raises as `DryRun.wait` does, except for
        data errors, which the run itself reports, and inconclusive ones.
    """
    memory = Memory(loaded, folders)
    if not wanted or memory.knows():
        yield lambda: None
        return
    with begin(loaded, os.path.join(logs, "dry_run")) as trial:

        def wait() -> Optional[DryRunResult]:
            try:
                tried = trial.wait()
            except errors.DataError:
                return None
            except InconclusiveError as error:
                logger.warning(error.what)
                return None
            memory.remember()
            return tried

        yield wait
