"""The variable by which TensorFlow takes another Keras than the stack's. Standard library only."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping

from tfx_estimator.pipeline.base.stack.stacks import KERAS, choose_keras

# As TensorFlow reads it.
_TRUE = ("1", "true", "True")


def without_other_keras(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which TensorFlow takes Keras 2."""
    return {name: value for name, value in environment.items() if name != KERAS or _is_of_keras_2(value)}


def clear() -> bool:
    """Leaves another choice of Keras out of this process's environment, and so of its children's."""
    if found := not _is_of_keras_2(os.environ.get(KERAS)):
        del os.environ[KERAS]
    choose_keras()
    return found


def _is_of_keras_2(value: str | None) -> bool:
    """Keras 2 is tf_keras where it is installed, else keras of TensorFlow 2.15."""
    return value is None or (value in _TRUE) is (importlib.util.find_spec("tf_keras") is not None)
