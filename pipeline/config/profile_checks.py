"""Checks of `trainer.profile`: steps that nobody does, and a training that nobody can look into, are refused."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, functions_of

_PATH = "trainer.profile"
_ESTIMATOR, _PARAMETER_SERVER = "estimator", "parameter_server"


def check_profile(declaration: Declaration) -> Iterator[Problem]:
    """Checks the section.

    Args:
        declaration: Typed values.

    Yields:
        The problems.
    """
    trainer = declaration.trainer
    if trainer.profile is None:
        return
    if trainer.module_file and (functions_of(trainer.module_file) or ("",))[0] == RUN_FN:
        yield refuse_run_fn()
    if trainer.train_steps and trainer.profile.start_step >= trainer.train_steps:
        yield Problem(
            f"{_PATH}.start_step",
            "training ends before the profile begins",
            f"less than trainer.train_steps, {trainer.train_steps}",
            "lower it, or train longer",
            value=str(trainer.profile.start_step),
            depends=("trainer.train_steps",),
        )


def note_profile(declaration: Declaration) -> Iterator[str]:
    """Yields what the user should know of what is not profiled.

    Args:
        declaration: Typed values.
    """
    trainer = declaration.trainer
    strategy = trainer.distribution.train.strategy
    if trainer.profile is not None and trainer.path != _ESTIMATOR and strategy == _PARAMETER_SERVER:
        yield (
            f"{_PATH}: on path: {trainer.path} with {strategy} only the chief is profiled, which hands out the steps; "
            f"the workers, which do them, have no profile. See their shares of the time by path: {_ESTIMATOR}"
        )


def refuse_run_fn() -> Problem:
    """Says why a run_fn's steps cannot be profiled."""
    return Problem(
        _PATH,
        "a run_fn does its steps by itself, and nobody else knows when they begin",
        "null; or a trainer_fn",
        "remove it, and call tf.profiler.experimental.start and stop inside the run_fn",
        depends=("trainer.module_file",),
    )
