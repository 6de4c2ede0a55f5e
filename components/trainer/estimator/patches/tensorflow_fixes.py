"""What every training task changes in TensorFlow."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from tfx_estimator.components.trainer.patch import Patch

_LOOK_SECONDS = 1


def apply() -> None:
    """Applies all of them; a second call changes nothing."""
    for patch in PATCHES:
        patch.apply()


def _save_without_asking_every_step(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    # Known only to a private method, which Estimator calls for a TPU alone.
    self._set_steps_per_run(1)


def _look_often_for_the_chief(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    self._recovery_wait_secs = min(self._recovery_wait_secs, _LOOK_SECONDS)


def _come_after_those_there(original: Any, export_dir_base: Any) -> bytes:
    found = tf.compat.as_str(original(export_dir_base))
    folder = os.path.dirname(found)
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)] if tf.io.gfile.exists(folder) else []
    newest = max((int(name) for name in names if name.isdigit()), default=0)
    return tf.compat.as_bytes(os.path.join(folder, str(max(int(os.path.basename(found)), newest + 1))))


PATCHES = (
    Patch(
        "tensorflow.python.training.basic_session_run_hooks:CheckpointSaverHook.__init__",
        _save_without_asking_every_step,
        reason="checkpoint hooks take a run for up to a million steps, a TPU's, unless told: they read the global step "
        "by a session.run of their own after each step, 7 % of the examples per second of a small network",
        until="tf.estimator tells its checkpoint hooks the steps of a run on other devices too",
    ),
    Patch(
        "tensorflow.python.training.session_manager:SessionManager.__init__",
        _look_often_for_the_chief,
        reason="a worker of parameter servers looks every 30 s only whether the chief has initialised the variables, "
        "and misses a short training altogether",
        until="tf.estimator hands recovery_wait_secs on",
    ),
    Patch(
        "tensorflow_estimator.python.estimator.export.export_lib:get_timestamped_export_dir",
        _come_after_those_there,
        reason="an export is named by the clock, and the newest has the largest number: after a clock was set "
        "back an earlier export, of fewer steps too, is taken for it, and the newest is collected as garbage",
        until="tf.estimator names an export by a number above all that are there",
    ),
)
