"""Checkpoints of a training whose global step grows while they are written."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator import asynchronous_saves
from tfx_estimator.components.trainer.protocol.stop import ask_to_stop

pytestmark = pytest.mark.unit


def test_a_worker_waits_for_the_checkpoint_that_it_is_an_interval_ahead_of(tmp_path: Path) -> None:
    stop_file = str(tmp_path / "stop")
    saved = asynchronous_saves.saved_step(stop_file)
    saved.set(100)
    hook = asynchronous_saves.wait_hook(stop_file, interval=20, trainers=2, max_steps=200)
    assert hook is not None

    def seconds(step: int) -> float:
        started = time.monotonic()
        hook.after_run(None, tf.compat.v1.train.SessionRunValues(np.int64(step), None, None))
        return time.monotonic() - started

    assert seconds(117) < 0.1
    threading.Timer(0.3, saved.set, [118]).start()
    assert 0.2 < seconds(118) < 1.0
    assert seconds(135) < 0.1
    # The chief saves no more after the last step.
    assert seconds(198) < 0.1
    threading.Timer(0.3, ask_to_stop, [stop_file, 140]).start()
    assert 0.2 < seconds(136) < 1.0


@pytest.mark.parametrize("interval", [None, 7])
def test_nobody_waits_where_there_is_no_interval_to_speak_of(tmp_path: Path, interval: int | None) -> None:
    assert asynchronous_saves.wait_hook(str(tmp_path / "stop"), interval, trainers=2, max_steps=None) is None


@pytest.mark.parametrize(
    ("declared", "meanwhile", "trainers", "expected"),
    [(100, 0, 2, 80), (100, 5, 2, 93), (25, 3, 2, 20), (25, 40, 2, 13), (1, 0, 2, 1), (2, 1, 8, 1)],
)
def test_the_margin(declared: int, meanwhile: int, trainers: int, expected: int) -> None:
    assert asynchronous_saves.save_every(declared, meanwhile, trainers) == expected
