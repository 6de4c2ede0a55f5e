"""Converts the arguments of a Trainer, or of a Tuner's trials, to settings.

A Trainer has one of TFX's two contracts: the generic one, a run_fn, or the Estimator's, a trainer_fn.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from absl import logging
from tfx.components.trainer import executor as tfx_executor
from tfx.dsl.components.base import executor_spec
from tfx.proto import trainer_pb2

from tfx_estimator.components.in_python import TRAINER, Argument, parse, plain, read_message, read_section
from tfx_estimator.components.trainer.settings import RUN_FN, Settings, path_of
from tfx_estimator.components.trainer.source import deciding_code
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.rules.distribution import OWN_INPUT, STRATEGIES
from tfx_estimator.pipeline.config.rules.rule import Case, broken
from tfx_estimator.pipeline.config.rules.run_fn import RUN_FN_DISTRIBUTION, TRAINS_ITSELF
from tfx_estimator.pipeline.config.rules.training import RUNTIME, WARM_START
from tfx_estimator.pipeline.config.strategies import TRAITS
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.warm_start import WarmStart
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source
from tfx_estimator.pipeline.user_source.trainer_functions import TRAINER_FN, find_estimator, functions_of

# For error messages about an argument: an example of its form, and what to do.
_DISTRIBUTION = (
    'a dict such as {"train": {"strategy": "mirrored", "devices": {"gpu": 2}}, "evaluator": False}',
    f"name the strategy: {', '.join(TRAITS)}",
)
_WARM_START = (
    'a dict such as {"checkpoint": "before/model.ckpt-100"}, or {"model": FOLDER, "exclude": ["head/*"]}',
    "name the checkpoint, or the SavedModel, by its path",
)
_ENTRIES_FORM = (
    'tf1=True, threads={"intra_op": 2}, gpu={"memory_growth": True}, onednn=False, profile={"start_step": 100}'
)
_EXECUTORS = "custom_executor_spec=ExecutorClassSpec(…) of tfx.components.trainer.executor"
# TFX's executors, and the functions that they call.
_CALLED: dict[type, str] = {tfx_executor.GenericExecutor: RUN_FN}
if stacks.current().has_trainer_fn_executor:
    _CALLED[tfx_executor.Executor] = TRAINER_FN


@dataclasses.dataclass(frozen=True)
class Contract:
    """The user's function that a Trainer calls.

    Args:
        path: As `Settings.path`.
        target: Location of the user's code, for `fingerprint_source`; empty if not known yet.
        has_both: True if a module file has both functions, and no argument chooses one: TFX then calls its run_fn.
    """

    path: str = ""
    target: str = ""
    has_both: bool = False


def check_settings(settings: Optional[Settings], component: str = TRAINER) -> Settings:
    """Checks the deadlines, which the user writes, in a component's settings."""
    if settings is None:
        return Settings()
    deadlines = {}
    for name in ("start_timeout", "stall_timeout"):
        argument = Argument((name,), component, "a number of seconds", inside="settings=Settings")
        deadlines[name] = plain(getattr(settings, name), argument)
        parse({name: deadlines[name]}, TrainerSection, ("trainer",), argument)
    return dataclasses.replace(settings, **deadlines)


def check_lengths(train_args: Any, eval_args: Any, component: str = TRAINER) -> None:
    """Refuses `train_args` and `eval_args` that TFX would accept and partly ignore."""
    for name, given, kind in (
        ("train_args", train_args, trainer_pb2.TrainArgs),
        ("eval_args", eval_args, trainer_pb2.EvalArgs),
    ):
        form = f"a trainer_pb2.{kind.__name__}, or a dict of its fields"
        todo = f"write {name}=trainer_pb2.{kind.__name__}(num_steps=…)"
        read_message(given, kind, Argument((name,), component, form, todo))


def read_arguments(
    contract: Contract, settings: Settings, given: Mapping[str, Any], component: str = TRAINER
) -> Settings:
    """Parses and checks a component's arguments beyond TFX's own parameters.

    Args:
        given: `distribution`, `warm_start`, `tf1`, `threads`, `gpu`, `onednn`, `profile`: as in the section `trainer`,
            the first two perhaps typed; None is the default.
        component: TRAINER or TUNER.

    Returns:
        The settings with these arguments, the path and the fingerprint of the source.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if given and (settings.declaration is not None or settings.arguments):
        raise Argument(tuple(given), component).twice()
    read: dict[str, Any] = {}
    if "distribution" in given:
        section = read_distribution(given["distribution"], component)
        # A default distribution is left out, so that it has the cache key of none.
        read |= {} if section == Distribution() else {"distribution": section.dict()}
    entries = {name: value for name, value in given.items() if name not in ("distribution", "warm_start")}
    if entries:
        read |= _read_entries(entries, read, component)
    weights = ""
    if "warm_start" in given:
        warm_start = _read_warm_start(given["warm_start"], read, component)
        read["warm_start"], weights = warm_start.dict(), f"-{warm_start.fingerprint()}"
    settings = settings.with_trainer(**read) if read else settings
    if settings.declaration is None:
        check_function(settings, contract, component)
    # Other weights at the same path make another model.
    source = (settings.source or _fingerprint(contract, component)) + weights
    return dataclasses.replace(settings, path=settings.path or contract.path, source=source)


def read_distribution(given: Any, component: str = TRAINER) -> Distribution:
    """Parses and checks the argument `distribution`."""
    argument = Argument(("distribution",), component, *_DISTRIBUTION)
    section = read_section(given, Distribution, ("trainer", "distribution"), argument)
    if problems := list(broken((*STRATEGIES, *OWN_INPUT), Case.of_distribution(section))):
        raise argument.refusal(problems)
    return section


def _read_entries(given: dict[str, Any], read: dict[str, Any], component: str) -> dict[str, Any]:
    argument = Argument(tuple(given), component, _ENTRIES_FORM)
    values = {name: plain(each, Argument((name,), component, _ENTRIES_FORM), name) for name, each in given.items()}
    section = parse({**values, **read}, TrainerSection, ("trainer",), argument)
    if problems := list(broken(RUNTIME, Case.of_trainer(section))):
        raise argument.refusal(problems)
    return {name: value for name, value in section.dict().items() if name in given}


def _read_warm_start(given: Any, read: dict[str, Any], component: str) -> WarmStart:
    """Parses it, with absolute paths: training has another working directory than the pipeline's definition."""
    argument = Argument(("warm_start",), component, *_WARM_START)
    section = read_section(given, WarmStart, ("trainer", "warm_start"), argument)
    paths = {key: path for key in ("weights", "checkpoint", "model") if (path := getattr(section, key))}
    section = section.copy(update={key: _absolute(path) for key, path in paths.items()})
    trainer = TrainerSection(warm_start=section, distribution=read.get("distribution", {}))
    if problems := list(broken(WARM_START, Case.of_trainer(trainer))):
        raise argument.refusal(problems)
    return section


def _absolute(path: str) -> str:
    return path if is_address(path) else os.path.abspath(os.path.expanduser(path))


def check_function(settings: Settings, contract: Contract, component: str = TRAINER) -> None:
    """Checks that the user's function, once known, can use the arguments."""
    if contract.path != RUN_FN:
        return
    if settings.distribution.distributes:
        _check_distributed(settings.distribution, contract, component)
    for problem in broken(TRAINS_ITSELF, Case.of_trainer(settings.section)):
        if settings.declaration is not None:
            raise DeclarationError(f"{problem.path}: {problem.what}", expected=problem.expected, todo=problem.todo)
        # The argument has the name of the entry of the section `trainer`.
        raise Argument((problem.path.split(".")[1],), component).refusal([problem])


def _check_distributed(distribution: Distribution, contract: Contract, component: str) -> None:
    argument = Argument(("distribution",), component, *_DISTRIBUTION)
    if contract.has_both:
        raise DeclarationError(
            f"{argument.call}: {contract.target} has a run_fn, which TFX calls, and a trainer_fn",
            expected="the argument trainer_fn or run_fn: the strategies of a distribution are for a trainer_fn",
            todo=f'name it: trainer_fn="{pathlib.PurePath(contract.target).stem}.trainer_fn", or {_EXECUTORS}'
            ".Executor; for the run_fn, .GenericExecutor",
        )
    case = Case.of_distribution(distribution)
    case.run_fn_estimator = find_estimator(contract.target) if contract.target else ""
    if problems := list(broken(RUN_FN_DISTRIBUTION, case)):
        raise argument.refusal(problems)


def _fingerprint(contract: Contract, component: str) -> str:
    """Returns the fingerprint of the user's code and of this project's code that decides the model."""
    own = deciding_code(contract.path)
    if contract.target:
        try:
            return fingerprint_source([contract.target, *own])
        except DeclarationError as error:
            # The module may exist only where the pipeline runs. TFX keys a module file by its contents.
            if not contract.target.endswith(".py"):
                logging.warning("The %s's cache key does not include its user code: %s.", component, error.what)
    return fingerprint_source(own)


def find_contract(
    module_file: Any,
    run_fn: Any,
    trainer_fn: Any,
    executor: Optional[executor_spec.ExecutorSpec] = None,
    component: str = TRAINER,
) -> Contract:
    """Finds the function as TFX does: by argument or executor; in a module file with both functions, the run_fn.

    Args:
        module_file: The Trainer's argument, like the next two: text, a RuntimeParameter or None.
        executor: `custom_executor_spec`.
    """
    if run_fn and trainer_fn:
        raise DeclarationError(
            f"the {component} is given a run_fn and a trainer_fn", expected="one of them", todo="remove the other"
        )
    called = _called_by(executor)
    if not module_file:
        name, dotted = (TRAINER_FN, trainer_fn) if trainer_fn else (RUN_FN, run_fn)
        module, _, function = dotted.rpartition(".") if isinstance(dotted, str) else ("", "", "")
        return Contract(path_of([name]), f"{module}:{function}" if module else "") if dotted else Contract()
    if not isinstance(module_file, str):
        return Contract(path_of([called]) if called else "")
    functions = functions_of(module_file)
    if functions == ():
        raise DeclarationError(
            f"the module file {module_file} defines neither run_fn nor trainer_fn",
            expected="`def run_fn(fn_args)` or `def trainer_fn(fn_args, schema)`",
            todo="define one of them",
        )
    chosen: Sequence[str] = [called] if called else functions or ()
    return Contract(path_of(chosen), module_file, has_both=not called and len(functions or ()) > 1)


def _called_by(spec: Optional[executor_spec.ExecutorSpec]) -> str:
    """Returns the function that an executor calls; empty without an executor."""
    if spec is None:
        return ""
    named = getattr(spec, "executor_class", None)
    if named not in _CALLED:
        raise DeclarationError(
            f"custom_executor_spec names {getattr(named, '__name__', type(spec).__name__)}",
            expected="none: this Trainer's own executor supervises the training",
            todo="remove it, or use tfx.components.Trainer for that executor",
        )
    return _CALLED[named]
