"""Finds the functions that the user names."""

from __future__ import annotations

import atexit
import importlib
import inspect
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags
from tfx.components.util import udf_utils
from tfx.types.standard_component_specs import MODULE_PATH_KEY
from tfx.utils import io_utils

from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.user_source import functions, loader


def find_function(target: str) -> Callable:
    """Imports `package.module:function`."""
    module_name, _, name = expand("trainer.model", target).partition(":")
    try:
        module = importlib.import_module(loader.import_name(module_name))
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
    _parse_flags("trainer.params")
    return function


def call_network(function: Callable, num_classes: int, params: Mapping[str, Any]) -> Any:
    """Calls a function that returns a Keras model."""
    arguments = inspect.signature(function).parameters
    first = next(iter(arguments.values()), None)
    if first is None or first.kind is first.VAR_KEYWORD or first.name in params:
        return function(**params)
    if first.kind is first.KEYWORD_ONLY:
        return function(**({"num_classes": num_classes} if "num_classes" in arguments else {}), **params)
    # One with a default may be anything.
    takes = first.default is first.empty or "class" in first.name
    return function(*([num_classes] if takes else ()), **params)


def function_of(exec_properties: dict[str, Any], name: str) -> Callable:
    """Returns the user's `trainer_fn` or `run_fn`.

    A module file was packed into a wheel by TFX, with all modules beside it; it is unpacked, not installed: the tasks
    of a cluster start at once, and pip would take seconds of each, and look for a newer pip.
    """
    module, _, wheel = (exec_properties.get(MODULE_PATH_KEY) or "").partition("@")
    if wheel:
        _unpack(wheel)
    named = {MODULE_PATH_KEY: module, name: exec_properties.get(name)}
    exec_properties = {**exec_properties, **{key: value and loader.import_name(value) for key, value in named.items()}}
    try:
        function = udf_utils.get_fn(exec_properties, name)
    except AttributeError as error:
        if error.name != name:  # of the module's own code
            raise
        raise UserCodeError(
            f"the user's module defines no {name}: {error}",
            expected="`def trainer_fn(fn_args, schema)` or `def run_fn(fn_args)`",
            todo=f"define {name}",
        ) from error
    _parse_flags("custom_config")
    return function


def _parse_flags(instead: str) -> None:
    """Has absl's flags be what their definitions say, as a script's main would: a task has no arguments for them."""
    if flags.FLAGS.is_parsed():
        return
    try:
        flags.FLAGS([sys.argv[0]])
    except flags.IllegalFlagValueError as error:
        raise UserCodeError(
            f"your module defines flags of absl that cannot be what they are by default: {error}",
            expected="flags with defaults that hold: a training task has no command line to set them by",
            todo=f"give the flag a default, without mark_flag_as_required; or take the value from {instead}",
        ) from error


def _unpack(wheel: str) -> None:
    """Makes the modules of a wheel importable."""
    folder = tempfile.mkdtemp(prefix="tfx-estimator-module-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(io_utils.ensure_local(wheel)) as file:
        file.extractall(folder)
    loader.install([folder])


def is_model_fn(function: Callable) -> bool:
    """Tells a whole Estimator model_fn, which takes features, labels and mode, from a network function."""
    return functions.is_model_fn(inspect.signature(function).parameters)
