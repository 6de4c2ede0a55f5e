"""The user's functions, TFX's arguments for them, and the initial weights."""

from __future__ import annotations

import atexit
import importlib
import inspect
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Optional

from absl import flags
from tfx.components.trainer import executor as tfx_executor
from tfx.components.trainer import fn_args_utils
from tfx.components.util import udf_utils
from tfx.types import artifact_utils
from tfx.types.standard_component_specs import MODULE_PATH_KEY
from tfx.utils import io_utils, path_utils

from tfx_estimator.components.trainer.job import Job, TaskContext
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, DRY_RUN
from tfx_estimator.model_fn.user_models.keras_model import note_makers
from tfx_estimator.model_fn.user_models.warm_start import Matched
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.config.warm_start import WarmStart
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
    note_makers()
    given, named = arguments_of_network(function, num_classes, params)
    return function(*given, **named)


def arguments_of_network(
    function: Callable, num_classes: int, params: Mapping[str, Any]
) -> tuple[list[int], dict[str, Any]]:
    """Returns the positional and the keyword arguments for a function that returns a Keras model."""
    arguments = inspect.signature(function).parameters
    first = next(iter(arguments.values()), None)
    if first is None or first.kind is first.VAR_KEYWORD or first.name in params:
        return [], dict(params)
    if first.kind is first.KEYWORD_ONLY:
        return [], {**({"num_classes": num_classes} if "num_classes" in arguments else {}), **params}
    # A first argument with a default may be anything.
    takes = first.default is first.empty or "class" in first.name
    return [num_classes] if takes else [], dict(params)


def function_of(exec_properties: dict[str, Any], name: str) -> Callable:
    """Returns the user's `trainer_fn` or `run_fn`.

    TFX packs a module file into a wheel, with all modules of its folder. It is unpacked, not installed: pip would
    delay each task of a cluster by seconds, and look for a newer pip.
    """
    module, _, wheel = (exec_properties.get(MODULE_PATH_KEY) or "").partition("@")
    if wheel:
        _unpack(wheel)
    named = {MODULE_PATH_KEY: module, name: exec_properties.get(name)}
    exec_properties = {**exec_properties, **{key: value and loader.import_name(value) for key, value in named.items()}}
    try:
        function = udf_utils.get_fn(exec_properties, name)
    except AttributeError as error:
        if error.name != name:  # raised in the user's module
            raise
        raise UserCodeError(
            f"the user's module defines no {name}: {error}",
            expected="`def trainer_fn(fn_args, schema)` or `def run_fn(fn_args)`",
            todo=f"define {name}",
        ) from error
    _parse_flags("custom_config")
    return function


def _parse_flags(instead: str) -> None:
    """Sets absl's flags to their defaults, as a script's main would without arguments."""
    if flags.FLAGS.is_parsed():
        return
    try:
        flags.FLAGS([sys.argv[0]])
    except flags.IllegalFlagValueError as error:
        raise UserCodeError(
            f"your module defines absl flags whose defaults are not valid: {error}",
            expected="flags with valid defaults: a training task has no command line to set them",
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
    """Returns whether a function is an Estimator model_fn, with features, labels and mode, or a network function."""
    return functions.is_model_fn(inspect.signature(function).parameters)


def make_fn_args(job: Job) -> fn_args_utils.FnArgs:
    """Returns the FnArgs of TFX's executor, with folders in the training folder."""
    inputs = artifact_utils.parse_artifact_dict(job.inputs)
    outputs = artifact_utils.parse_artifact_dict(job.outputs)
    fn_args = tfx_executor.GenericExecutor()._GetFnArgs(inputs, outputs, job.exec_properties)
    fn_args.model_run_dir = job.training_dir
    fn_args.serving_model_dir = path_utils.serving_model_dir(job.training_dir)
    fn_args.eval_model_dir = path_utils.eval_model_dir(job.training_dir)
    return fn_args


def warm_start_of(context: TaskContext) -> Optional[WarmStart]:
    """Returns the declared warm start, or else TFX's `base_model`, which a module file finds in its `fn_args`."""
    section, task = context.settings.trainer, context.task
    if not (task.trains or task.type == DRY_RUN):
        return None
    begins = context.settings.section.warm_start
    if begins is not None and begins.blessed:
        # The training folder has its checkpoint already.
        return None
    if begins is not None and not begins.source:
        raise UserCodeError(
            f"trainer.warm_start: no weights are in {begins.weights or begins.checkpoint or begins.model}",
            expected="the weights that were there when the pipeline was made, in a place that the training can read",
            todo="copy it there again, or name another",
        )
    if begins is not None or section is None or section.module_file is not None or task.type == DRY_RUN:
        return begins
    base_model = make_fn_args(context.job).base_model
    if base_model and context.distribution.train.variable_partitioner is not None:
        raise UserCodeError(
            "base_model: the weights of partitioned variables are not read",
            expected="no trainer.distribution.train.variable_partitioner",
            todo="remove one of the two",
        )
    return WarmStart(model=base_model) if base_model else None


def tell(context: TaskContext, matched: Matched) -> None:
    """Reports the initial weights."""
    if context.task.type == CHIEF:
        context.progress.write(Event.WARMED, text=matched.summary)
        if matched.left:
            context.progress.write(Event.NOTICED, text=f"trainer.warm_start left out {matched.left}")
