"""How a training task changes TensorFlow, in its own process alone: only by patches that say why, and until when."""

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
    """A function of TensorFlow's that is replaced.

    Args:
        target: The function, `package.module:name` or `package.module:Class.name`.
        replacement: What is called instead: with the original function, then its arguments.
        reason: What goes wrong without it.
        until: When it may go.
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
                f"TensorFlow {tf.__version__} is not the one that {self.target} is patched in",
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
