"""The Trainer's parameters `threads`, `gpu`, `onednn` and `profile`: as in a declaration, without a YAML file."""

from __future__ import annotations

from typing import Any, Optional

from tfx_estimator.components.in_python import TRAINER, Argument, parse, plain
from tfx_estimator.components.trainer.settings import RUN_FN, Settings
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.rule import broken
from tfx_estimator.pipeline.config.rules.run_fn import TRAINS_ITSELF
from tfx_estimator.pipeline.config.rules.training import RUNTIME
from tfx_estimator.pipeline.config.trainer import TrainerSection

_FORM = 'threads={"intra_op": 2}, gpu={"memory_growth": True}, onednn=False, profile={"start_step": 100}'


def read_runtime(given: dict[str, Any], settings: Settings, component: str = TRAINER) -> Optional[dict[str, Any]]:
    """Types and checks what a component was given.

    Args:
        given: By parameter; None is the default.

    Returns:
        As `Settings.runtime_section`; None where nothing is given.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return None
    argument = Argument(tuple(given), component, _FORM)
    if settings.declaration is not None or settings.runtime_section is not None:
        raise argument.twice()
    values = {name: plain(value, Argument((name,), component, _FORM), name) for name, value in given.items()}
    section = parse({**values, "distribution": settings.distribution}, TrainerSection, ("trainer",), argument)
    if problems := list(broken(RUNTIME, Case.of_trainer(section))):
        raise argument.refusal(problems)
    return {name: value for name, value in section.dict().items() if name in given}


def check_profiled(settings: Settings, path: str, component: str = TRAINER) -> None:
    """Checks that somebody knows when the profiled steps begin.

    Raises:
        DeclarationError: A run_fn's steps are its own.
    """
    if path != RUN_FN or settings.declaration is not None:
        return
    if problems := list(broken(TRAINS_ITSELF, Case.of_trainer(settings.runtime))):
        raise Argument(("profile",), component).refusal(problems)
