"""What a training task changes in TensorFlow, in its own process alone."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

_LOOK_SECONDS = 1


def apply() -> None:
    """Applies all of them; a second call changes nothing."""
    _save_without_asking_every_step()
    _look_often_for_the_chief()


def _save_without_asking_every_step() -> None:
    """Has checkpoint hooks read the global step by a `session.run` of their own only when a checkpoint may be due.

    They take a run for up to a million steps (a TPU's) unless told, so they ask after each one: 7 % of the examples per
    second of a small network. The number is known only to a private method, hence the wrapped constructor.
    """
    hook = tf.compat.v1.train.CheckpointSaverHook
    original = hook.__init__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._set_steps_per_run(1)

    hook.__init__ = init


def _look_often_for_the_chief() -> None:
    """Has a worker of parameter servers look every second whether the chief has initialised the variables.

    It would look every 30 s, and so miss a short training altogether.
    """
    manager = tf.compat.v1.train.SessionManager
    original = manager.__init__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._recovery_wait_secs = min(self._recovery_wait_secs, _LOOK_SECONDS)

    manager.__init__ = init
