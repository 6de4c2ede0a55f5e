"""Finds the functions that the user names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

from tfx_estimator.pipeline.config.builtin import expand
from tfx_estimator.pipeline.errors import UserCodeError
from tfx_estimator.pipeline.user_source import functions


def find_function(target: str) -> Callable:
    """Imports `package.module:function`.

    Args:
        target: The function.

    Returns:
        The function.

    Raises:
        UserCodeError: There is none.
    """
    module_name, _, name = expand("trainer.model", target).partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserCodeError(
            f"trainer.model: {target!r} cannot be imported: {error}",
            expected="`package.module:function`, importable from the declaration's folder",
            todo="check the name, and that what the module imports is installed",
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UserCodeError(
            f"trainer.model: {module_name} has no function {name!r}",
            expected="one of: " + ", ".join(n for n, f in vars(module).items() if inspect.isfunction(f)),
            todo="name one of them",
        )
    return function


def is_model_fn(function: Callable) -> bool:
    """Tells a whole Estimator model_fn, which takes features, labels and mode, from a network function."""
    return functions.is_model_fn(inspect.signature(function).parameters)
