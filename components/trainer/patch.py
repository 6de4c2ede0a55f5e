"""Patches of TensorFlow in a training task's process, each with its reason and when it can go."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.base.stack import stacks

_TARGET = "_tfx_estimator_patch"


@dataclasses.dataclass(frozen=True)
class Patch:
    """A replacement of a function in TensorFlow.

    Args:
        target: The function, `package.module:name` or `package.module:Class.name`.
        replacement: Called instead, with the original function before its arguments.
        reason: What goes wrong without the patch.
        until: When the patch can go.
    """

    target: str
    replacement: Callable[..., Any]
    reason: str
    until: str

    def apply(self) -> None:
        """Replaces the function; a second call changes nothing."""
        stack = stacks.current()
        module, _, path = self.target.partition(":")
        *parents, name = path.split(".")
        try:
            if not stack.is_of(tf.__version__):
                raise AttributeError
            owner = functools.reduce(getattr, parents, importlib.import_module(module))
            original = getattr(owner, name)
        except (ImportError, AttributeError):
            raise TrainingError(
                f"{self.target} cannot be patched in TensorFlow {tf.__version__}",
                expected=f"TensorFlow {stack.tensorflow}; without the patch: {self.reason}",
                todo=f"install tensorflow=={stack.tensorflow}",
            ) from None
        if getattr(original, _TARGET, None) == self.target:
            return

        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return self.replacement(original, *args, **kwargs)

        setattr(replaced, _TARGET, self.target)
        setattr(owner, name, replaced)
