"""The Trainer's parameters `threads`, `gpu`, `onednn` and `profile`: as in a declaration, without a YAML file."""

from __future__ import annotations

from typing import Any, Optional

from tfx_estimator.components.trainer.in_python import name_kind, parse, plain, refusal
from tfx_estimator.components.trainer.settings import RUN_FN, Settings
from tfx_estimator.pipeline.config.profile_checks import refuse_run_fn
from tfx_estimator.pipeline.config.runtime_checks import check_runtime
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import DeclarationError


def read_runtime(given: dict[str, Any], settings: Settings) -> Optional[dict[str, Any]]:
    """Types and checks what a Trainer was given.

    Args:
        given: By parameter; None is the default.
        settings: With the distribution.

    Returns:
        As `Settings.runtime_section`; None where nothing is given.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return None
    arguments = ", ".join(f"{name}=…" for name in given)
    if settings.declaration is not None or settings.runtime_section is not None:
        raise DeclarationError(
            f"Trainer({arguments}) is given settings that hold such values as well",
            expected="them in one place",
            todo="remove one of the two",
        )
    values = plain(given, _not_plain)
    section = parse({**values, "distribution": settings.distribution}, TrainerSection, ("trainer",), arguments)
    if problems := list(check_runtime(section)):
        raise refusal(arguments, problems)
    return {name: value for name, value in section.dict().items() if name in given}


def check_profiled(settings: Settings, path: str) -> None:
    """Checks that somebody knows when the profiled steps begin.

    Args:
        settings: With what was given.
        path: Of training.

    Raises:
        DeclarationError: A run_fn's steps are its own.
    """
    if path == RUN_FN and settings.declaration is None and settings.runtime.profile is not None:
        raise refusal("profile=…", [refuse_run_fn()])


def _not_plain(value: Any, path: str) -> DeclarationError:
    return DeclarationError(
        f"Trainer({path.partition('.')[0]}=…): {path} is {name_kind(value)}",
        expected='threads={"intra_op": 2}, gpu={"memory_growth": True}, onednn=False, profile={"start_step": 100}',
        todo="give a dict of numbers and words, as in a declaration",
    )
