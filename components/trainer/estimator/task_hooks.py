"""Session hooks by which a task keeps the supervisor's contract."""

from __future__ import annotations

import time
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.training import training_util

from tfx_estimator.components.trainer.profiling.profiler import Profiler
from tfx_estimator.components.trainer.protocol.events import ProgressWriter
from tfx_estimator.components.trainer.protocol.stop import PeerLostError, StoppedByRequestError, asked_to_stop
from tfx_estimator.pipeline.base.errors import UserCodeError

_LOOK_SECONDS = 0.1
# Far more than anybody's model_fn adds up the gradients of, before it counts a step.
_UNMOVED_RUNS = 1_000
# Where any of several tasks may be the one that counts, and that one may be starting again.
_UNMOVED_SECONDS = 300.0


class FailFastHook(tf.compat.v1.train.SessionRunHook):
    """Ends a task of a synchronous cluster as soon as it has lost a peer.

    An Estimator would make a new session and wait for the peer, for ever: a task that is restarted alone cannot rejoin.
    """

    def __init__(self) -> None:
        self._sessions = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Counts sessions."""
        self._sessions += 1
        if self._sessions > 1:
            raise PeerLostError("the session to the other tasks was lost")


class StopHook(tf.compat.v1.train.SessionRunHook):
    """Shows the supervisor each step, and ends training at the one that it asks for, the same in each task.

    Tasks swallow SIGTERM, and a synchronous one that stops a step before the others would leave them waiting.

    Args:
        path: The task's `stop_file`.
        progress: Where to show the step.
        alone: Is each step of this process one global step; asynchronous workers do some of each other's.
    """

    def __init__(self, path: str, progress: ProgressWriter, alone: bool = True) -> None:
        self._path = path
        self._progress = progress
        self._alone = alone
        self._last = 0.0
        self._stop_at: Optional[int] = None
        self._step = 0
        self.stopped = False

    def begin(self) -> None:
        """Finds the global step."""
        # The tensor that TensorFlow's own hooks ask for in every step.
        self._tensor = training_util._get_or_create_global_step_read()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Notes the step that training starts from."""
        self._step = int(session.run(self._tensor))
        self._progress.at(self._step)

    def before_run(self, run_context: Any) -> Optional[tf.compat.v1.train.SessionRunArgs]:
        """Asks for the global step where others add to it."""
        return None if self._alone else tf.compat.v1.train.SessionRunArgs(self._tensor)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the step, and looks for the request ten times a second."""
        # One that is read is read beside the update, and may be that of before.
        self._step = self._step + 1 if self._alone else int(run_values.results)
        self._progress.at(self._step)
        if self._stop_at is None and time.monotonic() - self._last >= _LOOK_SECONDS:
            self._last = time.monotonic()
            self._stop_at = asked_to_stop(self._path)
        if self._stop_at is not None and self._step >= self._stop_at:
            self.stopped = True
            run_context.request_stop()


class UnmovedStepHook(tf.compat.v1.train.SessionRunHook):
    """Ends a training whose train_op never raises global_step: TensorFlow would wait for `max_steps` for ever.

    Args:
        total: `max_steps`.
        runs: Of the train_op, without a step, that are too many.
        seconds: That must have passed as well, where this process is not alone.
    """

    def __init__(
        self, total: int, alone: bool = True, runs: int = _UNMOVED_RUNS, seconds: float = _UNMOVED_SECONDS
    ) -> None:
        self._total = total
        self._most = runs
        self._seconds = 0.0 if alone else seconds

    def begin(self) -> None:
        """Finds the global step."""
        self._tensor = training_util._get_or_create_global_step_read()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Notes the step that training starts from."""
        self._moved(int(session.run(self._tensor)))

    def _moved(self, step: int) -> None:
        self._step, self._runs, self._since = step, 0, time.monotonic()

    def before_run(self, run_context: Any) -> Optional[tf.compat.v1.train.SessionRunArgs]:
        """Asks for the global step once it should long have moved: other runs fetch nothing."""
        return tf.compat.v1.train.SessionRunArgs(self._tensor) if self._runs >= self._most else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the run, and compares the step that was read."""
        self._runs += 1
        if run_values.results is None:
            return
        if (step := int(run_values.results)) != self._step:
            self._moved(step)
        elif time.monotonic() - self._since >= self._seconds:
            raise UserCodeError(
                f"the train_op ran {self._runs:,} times, and global_step stayed at {step:,}: training to step "
                f"{self._total:,} would never end",
                expected="a train_op that raises tf.compat.v1.train.get_global_step() by one in each step",
                todo="pass it as global_step to the minimize or apply_gradients of an optimizer of tf.compat.v1; make "
                "it the iterations of one of Keras's; or group the train_op with its assign_add(1)",
            )


class StepListener(tf.compat.v1.train.CheckpointSaverListener):
    """Shows the step of a checkpoint before it is written: CheckpointSaverHook runs before TrainSpec hooks.

    Args:
        progress: Where to show the step.
    """

    def __init__(self, progress: ProgressWriter) -> None:
        self._progress = progress

    def before_save(self, session: Any, global_step_value: Any) -> None:
        """Shows it: who is killed while it is written has done it."""
        self._progress.at(int(global_step_value))


class ProfileHook(tf.compat.v1.train.SessionRunHook):
    """Profiles the declared steps; of asynchronous workers, each counts its own from where it began."""

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self._step = 0

    def begin(self) -> None:
        """Finds the global step."""
        self._tensor = training_util._get_or_create_global_step_read()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Notes the step that training starts from."""
        self._step = int(session.run(self._tensor))
        self._profiler.at(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the step."""
        self._step += 1
        self._profiler.at(self._step)

    def end(self, session: Any) -> None:
        """Ends a profile that training has not filled."""
        self._profiler.at(self._step, is_last=True)


class ProfileListener(tf.compat.v1.train.CheckpointSaverListener):
    """Ends a profile before a checkpoint is written, and evaluated."""

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler

    def before_save(self, session: Any, global_step_value: Any) -> None:
        """Ends it, if its last step is done."""
        self._profiler.at(int(global_step_value), begins=False)


class NoEvaluationHook(tf.compat.v1.train.SessionRunHook):
    """Keeps an Estimator from evaluating and exporting after training was stopped.

    Args:
        stop: The hook that knows.
    """

    def __init__(self, stop: StopHook) -> None:
        self._stop = stop

    def begin(self) -> None:
        """Ends the evaluation before it begins."""
        if self._stop.stopped:
            raise StoppedByRequestError
