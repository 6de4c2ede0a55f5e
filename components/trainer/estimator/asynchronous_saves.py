"""Has the chief of parameter servers save so early that no more than one checkpoint interval is ever lost.

Asynchronous workers go on while a checkpoint is written, and the chief looks at the step only after a step of its own:
checkpoints would lie further apart than declared by what the others do meanwhile.
"""

from __future__ import annotations

import functools
import math
import time
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.training import training_util

from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.components.trainer.protocol.step_cell import StepCell
from tfx_estimator.components.trainer.protocol.stop import asked_to_stop

# Of the interval, until the first save has shown how far the others get.
_FIRST_MARGIN = 0.2
# A save that takes longer than the interval must not become all that the chief does.
_LEAST_PART = 0.5
_LOOK_SECONDS = 0.01


def apply(trainers: int, saved: StepCell) -> None:
    """Has this process's checkpoint hooks that count steps begin early.

    Args:
        trainers: Tasks that do steps, the chief included.
        saved: Where to note the step of each checkpoint that is whole.
    """
    make_patch(trainers, saved).apply()


def make_patch(trainers: int, saved: StepCell) -> Patch:
    """What `apply` changes in TensorFlow."""
    return Patch(
        "tensorflow.python.training.basic_session_run_hooks:CheckpointSaverHook._save",
        functools.partial(_save_and_look, trainers, saved),
        reason="asynchronous workers go on while the chief saves: checkpoints lie further apart than declared",
        until="there is no tf.estimator",
    )


def _save_and_look(
    trainers: int, saved: StepCell, original: Any, self: Any, session: tf.compat.v1.Session, step: int
) -> bool:
    should_stop = original(self, session, step)
    saved.set(int(step))
    timer = self._timer
    if timer._every_steps is not None:
        meanwhile = int(session.run(self._global_step_tensor)) - int(step)
        self.declared_steps = getattr(self, "declared_steps", timer._every_steps)
        self.most_meanwhile = max(getattr(self, "most_meanwhile", 0), meanwhile)
        timer._every_steps = save_every(self.declared_steps, self.most_meanwhile, trainers)
    return bool(should_stop)


def saved_step(stop_file: str) -> StepCell:
    """Where the chief of a cluster on this machine notes its last checkpoint.

    Args:
        stop_file: The task's stop file, which all tasks share.
    """
    return StepCell(f"{stop_file}.saved")


def save_every(declared: int, meanwhile: int, trainers: int) -> int:
    """Steps from one save's beginning to the next one's.

    Args:
        declared: Steps that may be lost.
        meanwhile: Most steps that the cluster did during a save; 0 if none was done yet.
        trainers: Tasks that do steps; each may be in the middle of one.

    Returns:
        At least half of `declared`.
    """
    margin = meanwhile + trainers if meanwhile else max(trainers, math.ceil(_FIRST_MARGIN * declared))
    return max(declared - margin, math.ceil(_LEAST_PART * declared), 1)


def wait_hook(
    stop_file: str, interval: Optional[int], trainers: int, max_steps: Optional[int]
) -> Optional[WaitForSaveHook]:
    """Makes a worker's hook.

    Args:
        stop_file: The task's stop file, which all tasks share.
        interval: Declared steps between checkpoints; None if they come by the clock.
        trainers: Tasks that do steps.
        max_steps: Of the training.

    Returns:
        The hook; None if there is nothing to wait for, or an interval is but a step or two of each task.
    """
    if not interval or interval < 4 * trainers:
        return None
    return WaitForSaveHook(saved_step(stop_file), interval, trainers, stop_file, max_steps)


class WaitForSaveHook(tf.compat.v1.train.SessionRunHook):
    """Has a worker wait for the chief's next checkpoint, if it would be more than an interval behind.

    Only a chief that is stopped, or very slow, makes it wait: saves begin early.

    Args:
        saved: Of the chief.
        interval: Declared steps between checkpoints.
        trainers: Tasks that do steps; each may be in the middle of one.
        stop_file: The task's stop file, which ends the wait.
        max_steps: Of the training, after which the chief saves no more; None if it is not known.
    """

    def __init__(
        self, saved: StepCell, interval: int, trainers: int, stop_file: str, max_steps: Optional[int] = None
    ) -> None:
        self._saved = saved
        self._end = math.inf if max_steps is None else max_steps - trainers
        self._most = max(interval - trainers, 1)
        self._stop_file = stop_file
        self._last = 0

    def begin(self) -> None:
        """Finds the global step."""
        self._tensor = training_util._get_or_create_global_step_read()

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
        """Asks for the global step."""
        return tf.compat.v1.train.SessionRunArgs(self._tensor)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Waits."""
        step = int(run_values.results)
        if step >= self._end:
            return
        # The last look suffices as long as it says enough.
        while step - self._last >= self._most:
            self._last = self._saved.get()
            if step - self._last < self._most or asked_to_stop(self._stop_file) is not None:
                return
            time.sleep(_LOOK_SECONDS)
