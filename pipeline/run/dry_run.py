"""Tries the user's code before any data is ingested: in a process of its own, on made-up examples.

A mistake in a model_fn shows after seconds then, not after minutes. The process may end, hang or be left in any state.
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
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.known import SHORT_NAMES
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.user_source.faults import read_stack_now
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_meaning

_POLL_SECONDS = 0.05
_MOST_SECONDS = 300.0
# Without a sign: where the user's code is at work in Python all that time; and the least where it is not known.
_QUIET_SECONDS = 60.0
# Anything may send these; a signal of another kind is the code's own.
_MACHINES = (signal.SIGKILL, signal.SIGTERM)
# Native code crashed: a thread of TensorFlow's, or an operation that the user's code has called.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_FILE = "dry_run.json"
_REMEMBERED = 50
# The machine's fault, if no code of the user's took part.
_NOT_THEIRS = ("OSError", "MemoryError", "ResourceExhaustedError", "PermissionError", "TrainingError")
# What a trial depends on: of these sections, all but which examples there are, how long it trains, and what it writes.
_TRIED = ("data", "transform", "evaluator", "tune", "trainer")
_UNTRIED = {
    "data": ("splits", "shards", "download"),
    "trainer": (
        *("train_steps", "train_epochs", "eval_steps", "seed", "save_checkpoints_steps", "keep_checkpoint_max"),
        *("log_every_steps", "start_timeout", "stall_timeout", "shuffle_buffer", "resident_megabytes"),
    ),
}

logger = get_logger("dry_run")


class InconclusiveError(errors.TaskFailedError):
    """The trial says nothing of the user's code: the machine ended it."""


@dataclasses.dataclass(frozen=True)
class Tried:
    """What a dry run came to, that found nothing wrong.

    Args:
        parts: What was tried, one after another.
        seconds: Wall time, from the process's start.
        found: What an estimate found.
    """

    parts: tuple[str, ...]
    seconds: float
    found: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{'; '.join(self.parts)} ({self.seconds:.1f} s)"


class DryRun:
    """A dry run that goes on in a process.

    Args:
        logs: Folder for the process's log.
        folder: For what it makes.
        log_stays: Whether that log is there afterwards, so that messages may name it.
        path: Of the job: empty tries the code, COSTS only builds a step and tells what it costs.
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
        self._moved = self._process.started

    def wait(self) -> Tried:
        """Waits for its end."""
        while (code := self._process.code) is None:
            self._hear()
            if self._done is not None:
                # The trial is done. Do not wait for threads that the user's code has left: they may run for ever.
                break
            self._check_deadlines(time.monotonic())
            time.sleep(_POLL_SECONDS)
        self._hear()
        if said := self._process.error():
            raise self._raised(said)
        if self._done is not None:
            # The first is the data set's.
            return Tried(tuple(self._parts[1:]), self._done, self._found)
        assert code is not None
        if -code in _MACHINES:
            raise InconclusiveError(
                f"{self._title()} was ended by signal {-code}; its log ends with:\n{self._process.tail()}",
                expected="enough memory for a step",
                todo=f"try it again{self._or_see}",
            )
        what = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended, with exit code {code}"
        lines = self._process.users_frames()
        if -code in _CRASHES and not lines and not self._crashed:
            # Once in some hundreds TensorFlow ends so, for no reason that would come again.
            self._crashed, self._parts = True, []
            # If its keeper is what crashed, the rest is at work still.
            self._process.kill()
            self._process = self._start(attempt=2)
            self._moved = self._process.started
            return self.wait()
        if -code in _CRASHES and not lines:
            raise InconclusiveError(
                f"{self._title()} {what}, and no line of your code was at work; {self._at_work(lines)}",
                expected="a process that ends by itself",
                todo=f"try it again; if it comes again, look for what TensorFlow cannot do{self._or_see}",
            )
        raise errors.UserCodeError(
            f"{self._title()} {what}; {self._at_work(lines)}",
            expected="code that returns, or raises an error",
            todo=f"mend what ends the process{self._or_see}",
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
        """Ends the process, and whatever it started."""
        self._process.kill()

    def _check_deadlines(self, now: float) -> None:
        quiet, whole = now - self._moved, now - self._process.started
        late = quiet > self._timeout or whole > _MOST_SECONDS
        # A machine with much else to do is slow.
        slow = max(os.getloadavg()[0] / (os.cpu_count() or 1), 1)
        lines = read_stack_now(self._process.files.stacks) if late or quiet > _QUIET_SECONDS * slow else []
        if not lines and not late:
            return
        what = f"did not end within {whole:.0f} s" if whole > _MOST_SECONDS else f"gave no sign for {quiet:.0f} s"
        parts, way_out = "a step, an evaluation and an export", ", or run with --no-dry-run"
        if self._estimates:
            parts, way_out = "a step that is built", ""
        raise errors.UserCodeError(
            f"{self._title()} {what}; {self._at_work(lines)}",
            expected=f"{parts} in {_MOST_SECONDS:g} s",
            todo=f"mend what does not end{way_out}{self._or_see}",
        )

    def _at_work(self, lines: list[str]) -> str:
        if lines:
            return "your code was at work:\n" + "\n".join(lines)
        return f"its log ends with:\n{self._process.tail()}"

    def _hear(self) -> None:
        for event in self._process.events():
            self._moved = time.monotonic()
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

    def _raised(self, said: dict[str, Any]) -> errors.TfxEstimatorError:
        """The process's own error."""
        if (error := errors.from_json(said)) is not None:
            # No error class says that an export failed because of the user's code, so it is turned into one here.
            users = isinstance(error, errors.TrainingError)
            return errors.UserCodeError(error.what, expected=error.expected, todo=error.todo) if users else error
        theirs = bool(said["todo"])
        told = f"{self._title()} failed: {said['type']}: {said['what']}\n{said['where']}"
        if not theirs and said["type"] in _NOT_THEIRS:
            return InconclusiveError(told, todo=f"try it again{self._or_see}")
        return errors.UserCodeError(told, todo=(said["todo"] or "mend what is named above") + self._or_see)


@contextlib.contextmanager
def begin(loaded: Loaded, logs: Optional[str] = None, path: str = "") -> Iterator[DryRun]:
    """Starts a dry run; it ends with the context."""
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
    """Which code passed before, in a pipeline's folder."""

    def __init__(self, loaded: Loaded, folders: PipelineFolders) -> None:
        self._loaded = loaded
        self._path = os.path.join(folders.local, _FILE)

    def knows(self) -> bool:
        """Tells whether a dry run could say nothing new: of the built-in code, or of what passed."""
        trainer, transform = self._loaded.declaration.trainer, self._loaded.declaration.transform
        # A layer's name may be wrong in any, and so may the weights to begin with.
        asks_more = trainer.params or trainer.is_divided or trainer.warm_start
        built_in = trainer.model in SHORT_NAMES["trainer.model"] and not asks_more
        if built_in and transform.target in SHORT_NAMES["transform.preprocessing_fn"].values():
            return True
        return self._key() in self._passed()

    def remember(self) -> None:
        """Takes note that it passed."""
        passed = [key for key in self._passed() if key != self._key()]
        with contextlib.suppress(OSError):  # the next run tries it again
            write_json(self._path, [*passed, self._key()][-_REMEMBERED:])

    def _passed(self) -> list[str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return []
        return found if isinstance(found, list) else []

    def _key(self) -> str:
        declaration = self._loaded.declaration
        trainer = declaration.trainer
        sections = {name: section or {} for name, section in declaration.dict().items() if name in _TRIED}
        told = {
            name: {key: _shape(value) for key, value in section.items() if key not in _UNTRIED.get(name, ())}
            for name, section in sections.items()
        }
        sources = fingerprint_meaning([trainer.target, declaration.transform.target], self._loaded.search_paths)
        weights = trainer.warm_start.fingerprint() if trainer.warm_start else ""
        by = [stacks.current().extra, __version__]
        return hashlib.sha256(json.dumps([by, sources, weights, told], sort_keys=True).encode()).hexdigest()


def _shape(value: Any) -> Any:
    """A value without what seldom decides a shape: how large a rate is, of whose code any from 0 to 1 passes."""
    if isinstance(value, float) and 0 < value < 1:
        return "a rate"
    if isinstance(value, Mapping):
        return {key: _shape(each) for key, each in value.items()}
    return [_shape(each) for each in value] if isinstance(value, (list, tuple)) else value


@contextlib.contextmanager
def beside(
    loaded: Loaded, folders: PipelineFolders, logs: str, wanted: bool = True
) -> Iterator[Callable[[], Optional[Tried]]]:
    """Starts the dry run of a run, where it could say something new; it ends with the context.

    Yields:
        Waits for what was tried, None if nothing was. Raises what `DryRun.wait` does, but for what the run itself will
        say of the data, and for what says nothing of the code.
    """
    memory = Memory(loaded, folders)
    if not wanted or memory.knows():
        yield lambda: None
        return
    with begin(loaded, os.path.join(logs, "dry_run")) as trial:

        def wait() -> Optional[Tried]:
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
