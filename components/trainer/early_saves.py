"""Has the chief of parameter servers save so early that no more than one checkpoint interval is ever lost.

Asynchronous workers go on while a checkpoint is written, and the chief looks at the step only after a step of its own:
checkpoints would lie further apart than declared by what the others do meanwhile.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import tensorflow as tf

# Of the interval, until the first save has shown how far the others get.
_FIRST_MARGIN = 0.2
# A save that takes longer than the interval must not become all that the chief does.
_LEAST_PART = 0.5


def apply(trainers: int) -> None:
    """Changes this process's checkpoint hooks that count steps.

    Args:
        trainers: Tasks that do steps, the chief included.
    """
    hook = tf.compat.v1.train.CheckpointSaverHook
    original = hook._save
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def save(self: Any, session: tf.compat.v1.Session, step: int) -> bool:
        should_stop = original(self, session, step)
        timer = self._timer
        if timer._every_steps is not None:
            meanwhile = int(session.run(self._global_step_tensor)) - int(step)
            self.declared_steps = getattr(self, "declared_steps", timer._every_steps)
            self.most_meanwhile = max(getattr(self, "most_meanwhile", 0), meanwhile)
            timer._every_steps = save_every(self.declared_steps, self.most_meanwhile, trainers)
        return bool(should_stop)

    hook._save = save


def save_every(declared: int, meanwhile: int, trainers: int) -> int:
    """Steps from one save's beginning to the next one's.

    Args:
        declared: Steps that may be lost.
        meanwhile: Most steps that the cluster did during a save; 0 where none was done yet.
        trainers: Tasks that do steps; each may be in the middle of one.

    Returns:
        At least half of `declared`.
    """
    margin = meanwhile + trainers if meanwhile else max(trainers, math.ceil(_FIRST_MARGIN * declared))
    return max(declared - margin, math.ceil(_LEAST_PART * declared), 1)
