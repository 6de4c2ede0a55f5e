"""The arguments of a Trainer, or of a Tuner's trials, as the settings that they make.

A Trainer keeps one of TFX's two contracts: the generic one, a run_fn, or the Estimator's, a trainer_fn.
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
from tfx_estimator.pipeline.user_source.trainer_functions import TRAINER_FN, RunFn, functions_of, read_run_fn

# Of an argument: an example of what it takes, and what to do about what is none.
_DISTRIBUTION = (
    'a dict such as {"train": {"strategy": "mirrored", "devices": {"gpu": 2}}, "evaluator": False}',
    f"name the strategy: {', '.join(TRAITS)}",
)
_WARM_START = (
    'a dict such as {"checkpoint": "before/model.ckpt-100"}, or {"model": FOLDER, "exclude": ["head/*"]}',
    "name the checkpoint, or the SavedModel, by its path",
)
_RUNTIME_FORM = 'threads={"intra_op": 2}, gpu={"memory_growth": True}, onednn=False, profile={"start_step": 100}'
_EXECUTORS = "custom_executor_spec=ExecutorClassSpec(…) of tfx.components.trainer.executor"
# What TFX's executors call.
_CALLED: dict[type, str] = {tfx_executor.GenericExecutor: RUN_FN}
if stacks.current().has_trainer_fn_executor:
    _CALLED[tfx_executor.Executor] = TRAINER_FN


@dataclasses.dataclass(frozen=True)
class Contract:
    """What a Trainer was told to call.

    Args:
        path: As `Settings.path`.
        target: Where the user's code is, as `fingerprint_source` takes it; empty if that is not known yet.
        has_both: Whether a module file has both functions, and nothing else says which is meant: TFX calls its run_fn.
    """

    path: str = ""
    target: str = ""
    has_both: bool = False


def check_settings(settings: Optional[Settings], component: str = TRAINER) -> Settings:
    """Checks the settings that a component is given, of which the user writes the deadlines."""
    if settings is None:
        return Settings()
    deadlines = {}
    for name in ("start_timeout", "stall_timeout"):
        argument = Argument((name,), component, "a number of seconds", inside="settings=Settings")
        deadlines[name] = plain(getattr(settings, name), argument)
        parse({name: deadlines[name]}, TrainerSection, ("trainer",), argument)
    return dataclasses.replace(settings, **deadlines)


def check_lengths(train_args: Any, eval_args: Any, component: str = TRAINER) -> None:
    """Refuses `train_args` and `eval_args` that TFX would take, and leave a part of out."""
    for name, given, kind in (
        ("train_args", train_args, trainer_pb2.TrainArgs),
        ("eval_args", eval_args, trainer_pb2.EvalArgs),
    ):
        form = f"a trainer_pb2.{kind.__name__}, or a dict of its fields"
        todo = f"say {name}=trainer_pb2.{kind.__name__}(num_steps=…)"
        read_message(given, kind, Argument((name,), component, form, todo))


def read_arguments(
    contract: Contract, settings: Settings, given: Mapping[str, Any], component: str = TRAINER
) -> Settings:
    """Types and checks what a component was given beyond TFX's own parameters.

    Args:
        given: `distribution`, `warm_start`, `threads`, `gpu`, `onednn`, `profile`: as in the section `trainer`, the
            first two perhaps typed; None is the default.
        component: The one that was given it: TRAINER or TUNER.

    Returns:
        The settings, with all of it, the path and the fingerprint of the source.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if given and (settings.declaration is not None or settings.arguments):
        raise Argument(tuple(given), component).twice()
    read: dict[str, Any] = {}
    if "distribution" in given:
        section = read_distribution(given["distribution"], component)
        # One that says nothing is none: the same training, and the same key.
        read |= {} if section == Distribution() else {"distribution": section.dict()}
    runtime = {name: value for name, value in given.items() if name not in ("distribution", "warm_start")}
    if runtime:
        read |= _read_runtime(runtime, read, component)
    begins = ""
    if "warm_start" in given:
        begun = _read_warm_start(given["warm_start"], read, component)
        read["warm_start"], begins = begun.dict(), f"-{begun.fingerprint()}"
    settings = settings.with_trainer(**read) if read else settings
    if settings.declaration is None:
        check_function(settings, contract, component)
    # Other weights in the same place make another model.
    source = (settings.source or _fingerprint(contract, component)) + begins
    return dataclasses.replace(settings, path=settings.path or contract.path, source=source)


def read_distribution(given: Any, component: str = TRAINER) -> Distribution:
    """Types and checks the argument `distribution`."""
    argument = Argument(("distribution",), component, *_DISTRIBUTION)
    section = read_section(given, Distribution, ("trainer", "distribution"), argument)
    if problems := list(broken((*STRATEGIES, *OWN_INPUT), Case.of_distribution(section))):
        raise argument.refusal(problems)
    return section


def _read_runtime(given: dict[str, Any], read: dict[str, Any], component: str) -> dict[str, Any]:
    argument = Argument(tuple(given), component, _RUNTIME_FORM)
    values = {name: plain(each, Argument((name,), component, _RUNTIME_FORM), name) for name, each in given.items()}
    section = parse({**values, **read}, TrainerSection, ("trainer",), argument)
    if problems := list(broken(RUNTIME, Case.of_trainer(section))):
        raise argument.refusal(problems)
    return {name: value for name, value in section.dict().items() if name in given}


def _read_warm_start(given: Any, read: dict[str, Any], component: str) -> WarmStart:
    """Reads it, with absolute paths: it trains elsewhere than where the pipeline is made."""
    argument = Argument(("warm_start",), component, *_WARM_START)
    section = read_section(given, WarmStart, ("trainer", "warm_start"), argument)
    paths = {key: path for key in ("checkpoint", "model") if (path := getattr(section, key))}
    section = section.copy(update={key: _absolute(path) for key, path in paths.items()})
    trainer = TrainerSection(warm_start=section, distribution=read.get("distribution", {}))
    if problems := list(broken(WARM_START, Case.of_trainer(trainer))):
        raise argument.refusal(problems)
    return section


def _absolute(path: str) -> str:
    return path if is_address(path) else os.path.abspath(os.path.expanduser(path))


def check_function(settings: Settings, contract: Contract, component: str = TRAINER) -> None:
    """Checks what the user's function, once it is known, makes of the arguments."""
    if contract.path != RUN_FN:
        return
    if settings.distribution.distributes:
        _check_distributed(settings.distribution, contract, component)
    for problem in broken(TRAINS_ITSELF, Case.of_trainer(settings.section)):
        if settings.declaration is not None:
            raise DeclarationError(f"{problem.path}: {problem.what}", expected=problem.expected, todo=problem.todo)
        # By the entry of the section `trainer` that it is of.
        raise Argument((problem.path.split(".")[1],), component).refusal([problem])


def _check_distributed(distribution: Distribution, contract: Contract, component: str) -> None:
    argument = Argument(("distribution",), component, *_DISTRIBUTION)
    run_fn = read_run_fn(contract.target) if contract.target else RunFn()
    # Where a module file has both, it may import its trainer_fn.
    name = run_fn.trainer_fn or (f"{pathlib.PurePath(contract.target).stem}.trainer_fn" if contract.has_both else "")
    named = f'name it: trainer_fn="{name}"' if name else ""
    if contract.has_both:
        raise DeclarationError(
            f"{argument.call}: {contract.target} has a run_fn, which TFX calls, and a trainer_fn",
            expected="the one that is meant: the strategies of a distribution are for a trainer_fn",
            todo=f"{named}, or {_EXECUTORS}.Executor; for the run_fn, .GenericExecutor",
        )
    case = Case.of_distribution(distribution)
    case.run_fn, case.trainer_fn = run_fn, named
    if problems := list(broken(RUN_FN_DISTRIBUTION, case)):
        raise argument.refusal(problems)


def _fingerprint(contract: Contract, component: str) -> str:
    """Of the user's code, and of our own that decides the model."""
    own = deciding_code(contract.path)
    if contract.target:
        try:
            return fingerprint_source([contract.target, *own])
        except DeclarationError as error:
            # TFX needs the module when it trains, perhaps elsewhere. A module file it keys by its contents.
            if not contract.target.endswith(".py"):
                logging.warning("The %s's cache key does not see its user code: %s.", component, error.what)
    return fingerprint_source(own)


def find_contract(
    module_file: Any,
    run_fn: Any,
    trainer_fn: Any,
    executor: Optional[executor_spec.ExecutorSpec] = None,
    component: str = TRAINER,
) -> Contract:
    """Decides as TFX does: by the argument, by the executor; of a module file with both functions it is the run_fn.

    Args:
        module_file: Of the Trainer, as the next two; text, a RuntimeParameter or None.
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
    """The function that a named executor calls; empty if it may be either."""
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
