"""Which of TFX's two contracts a Trainer keeps: the generic one, a run_fn, or the Estimator's, a trainer_fn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from tfx.components.trainer import executor as tfx_executor
from tfx.dsl.components.base import executor_spec

from tfx_estimator.components.in_python import TRAINER
from tfx_estimator.components.trainer.settings import path_of
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, TRAINER_FN, functions_of

# What TFX's executors call.
_CALLED: dict[type, str] = {tfx_executor.GenericExecutor: RUN_FN}
if stacks.current().has_trainer_fn_executor:
    _CALLED[tfx_executor.Executor] = TRAINER_FN

# A module's file may have a name that is no word of Python, as `my-module`.
_IS_DOTTED = re.compile(r"([^\s.:/]+\.)+[^\W\d]\w*")


@dataclass(frozen=True)
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


def find_contract(
    module_file: Any,
    run_fn: Any,
    trainer_fn: Any,
    executor: Optional[executor_spec.ExecutorSpec],
    own: type,
    component: str = TRAINER,
) -> Contract:
    """Decides as TFX does: by the argument, by the executor; of a module file with both functions it is the run_fn.

    Args:
        module_file: Of the Trainer, as the next two; text, a RuntimeParameter or None.
        executor: `custom_executor_spec`.
        own: This Trainer's executor, which calls either.
    """
    for name, given in ((RUN_FN, run_fn), (TRAINER_FN, trainer_fn)):
        _check_dotted(name, given, component)
    if run_fn and trainer_fn:
        raise DeclarationError(
            f"the {component} is given a run_fn and a trainer_fn", expected="one of them", todo="remove the other"
        )
    called = _called_by(executor, own)
    if not module_file:
        name, dotted = (TRAINER_FN, trainer_fn) if trainer_fn else (RUN_FN, run_fn)
        if dotted and called not in ("", name):
            raise _contradiction(executor, called, f"the Trainer is given a {name}")
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
    if functions is not None and called and called not in functions:
        raise _contradiction(executor, called, f"the module file {module_file} defines {functions[0]} only")
    chosen: Sequence[str] = [called] if called else functions or ()
    return Contract(path_of(chosen), module_file, has_both=not called and len(functions or ()) > 1)


def _check_dotted(name: str, given: Any, component: str) -> None:
    """Refuses what TFX imports no function by, and the key sees no source of: else only the task would say so.

    What is known at run time only, a RuntimeParameter, is left alone.
    """
    is_dotted = isinstance(given, str) and _IS_DOTTED.fullmatch(given) and not given.endswith(".py")
    if given and not is_dotted and (isinstance(given, str) or callable(given)):
        raise DeclarationError(
            f"{component}({name}=…) is {given!r}",
            expected="a dotted path, `package.module.function`: a task finds the function by its name",
            todo=f'say {name}="package.module.{name}"; or give its file: module_file="module.py"',
        )


def _called_by(spec: Optional[executor_spec.ExecutorSpec], own: type) -> str:
    """The function that a named executor calls; empty if it may be either."""
    if spec is None:
        return ""
    named = getattr(spec, "executor_class", None)
    if named is own:
        return ""
    if named not in _CALLED:
        raise DeclarationError(
            f"custom_executor_spec names {getattr(named, '__name__', type(spec).__name__)}",
            expected="none: this Trainer's own executor supervises the training",
            todo="remove it, or use tfx.components.Trainer for that executor",
        )
    return _CALLED[named]


def _contradiction(spec: Any, called: str, given: str) -> DeclarationError:
    return DeclarationError(
        f"custom_executor_spec names TFX's {spec.executor_class.__name__}, which calls a {called}, and {given}",
        expected=f"a {called}, or no custom_executor_spec",
        todo="remove custom_executor_spec",
    )
