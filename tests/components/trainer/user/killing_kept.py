"""A kept training whose process is killed once at a step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from killed import kill_once


def killed(kill_at: int, marker: str) -> Any:
    from converted import network  # type: ignore[import-not-found]

    model = network.Training()
    step, calls = model.one_step, []

    def count() -> None:
        calls.append(1)
        if len(calls) == kill_at:
            kill_once(marker)

    def counted(*given: Any) -> Any:
        with tf.control_dependencies([tf.py_function(count, [], [])]):
            return step(*given)

    model.one_step = counted
    return model
