"""The Trainer's parameter `warm_start`: the section `trainer.warm_start` of a declaration, without a YAML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Union

from tfx_estimator.components.in_python import TRAINER, Argument, read_section
from tfx_estimator.components.trainer.settings import RUN_FN, Settings
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.rule import broken
from tfx_estimator.pipeline.config.rules.run_fn import TRAINS_ITSELF
from tfx_estimator.pipeline.config.rules.training import WARM_START
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.warm_start import WarmStart

_PATH = ("trainer", "warm_start")
_FORM = 'a dict such as {"checkpoint": "before/model.ckpt-100"}, or {"model": FOLDER, "exclude": ["head/*"]}'
_TODO = "name the checkpoint, or the SavedModel, by its path"
_PATHS = ("checkpoint", "model")


def read_warm_start(
    given: Union[Mapping[str, Any], WarmStart], settings: Settings, component: str = TRAINER
) -> WarmStart:
    """Types and checks what a component was given.

    Args:
        given: As in YAML, `{"checkpoint": "runs/before"}`; or typed. Paths are relative to the current folder.

    Returns:
        The section, with absolute paths.

    Raises:
        DeclarationError: Something is wrong, or given twice; the message lists everything that is.
    """
    argument = _argument(component)
    if settings.declaration is not None or settings.warm_start_section is not None:
        raise argument.twice()
    section = read_section(given, WarmStart, _PATH, argument)
    section = section.copy(update={key: _absolute(getattr(section, key)) for key in _PATHS if getattr(section, key)})
    trainer = TrainerSection(warm_start=section, distribution=settings.distribution)
    if problems := list(broken(WARM_START, Case.of_trainer(trainer))):
        raise argument.refusal(problems)
    return section


def check_begun(settings: Settings, path: str, component: str = TRAINER) -> None:
    """Checks that somebody else than the user's code makes the model.

    Raises:
        DeclarationError: It is a run_fn.
    """
    if path == RUN_FN and settings.warm_start_section is not None:
        trainer = TrainerSection.parse_obj({"warm_start": settings.warm_start_section})
        raise _argument(component).refusal(list(broken(TRAINS_ITSELF, Case.of_trainer(trainer))))


def _absolute(path: str) -> str:
    return path if is_address(path) else os.path.abspath(os.path.expanduser(path))


def _argument(component: str) -> Argument:
    return Argument(("warm_start",), component, _FORM, _TODO)
