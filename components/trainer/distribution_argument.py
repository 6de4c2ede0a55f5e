"""The Trainer's parameter `distribution`: the section `trainer.distribution` of a declaration, without a YAML file."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, Optional, Union

from tfx_estimator.components.in_python import TRAINER, Argument, read_section
from tfx_estimator.components.trainer.contract import Contract
from tfx_estimator.components.trainer.settings import RUN_FN
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.distribution import OWN_INPUT, STRATEGIES
from tfx_estimator.pipeline.config.rules.rule import broken
from tfx_estimator.pipeline.config.rules.run_fn import RUN_FN_DISTRIBUTION
from tfx_estimator.pipeline.user_source.trainer_functions import RunFn, read_run_fn

_PATH = ("trainer", "distribution")
_FORM = 'a dict such as {"train": {"strategy": "mirrored", "devices": {"gpu": 2}}, "evaluator": False}'
_TODO = "name the strategy: one_device, mirrored, central_storage, multi_worker_mirrored, parameter_server or tpu"
_EXECUTORS = "custom_executor_spec=ExecutorClassSpec(…) of tfx.components.trainer.executor"


def read_distribution(
    given: Union[Mapping[str, Any], Distribution], component: str = TRAINER, argument: Optional[Argument] = None
) -> Distribution:
    """Types and checks what a component was given.

    Args:
        given: As in YAML, `{"train": {"strategy": "multi_worker_mirrored", "workers": 2}}`; or typed.
        argument: That it is, if it is not the component's `distribution`.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    argument = argument or _argument(component)
    section = read_section(given, Distribution, _PATH, argument)
    if problems := list(broken((*STRATEGIES, *OWN_INPUT), Case.of_distribution(section))):
        raise argument.refusal(problems)
    return section


def check_contract(distribution: Distribution, contract: Contract, component: str = TRAINER) -> None:
    """Checks what the user's function makes of the distribution.

    Raises:
        DeclarationError: It is a run_fn, and cannot be given that; or there are two functions that could be meant.
    """
    if contract.path != RUN_FN or not distribution.distributes:
        return
    run_fn = read_run_fn(contract.target) if contract.target else RunFn()
    # Where a module file has both, it may import its trainer_fn.
    name = run_fn.trainer_fn or (f"{pathlib.PurePath(contract.target).stem}.trainer_fn" if contract.has_both else "")
    named = f'name it: trainer_fn="{name}"' if name else ""
    if contract.has_both:
        raise DeclarationError(
            f"{_argument(component).call}: {contract.target} has a run_fn, which TFX calls, and a trainer_fn",
            expected="the one that is meant: the strategies of a distribution are for a trainer_fn",
            todo=f"{named}, or {_EXECUTORS}.Executor; for the run_fn, .GenericExecutor",
        )
    case = Case.of_distribution(distribution)
    case.run_fn, case.trainer_fn = run_fn, named
    if problems := list(broken(RUN_FN_DISTRIBUTION, case)):
        raise _argument(component).refusal(problems)


def _argument(component: str) -> Argument:
    return Argument(("distribution",), component, _FORM, _TODO)
