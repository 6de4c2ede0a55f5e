"""Checks of `trainer.warm_start`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, functions_of

_PATH = "trainer.warm_start"


def check_warm_start(trainer: TrainerSection) -> Iterator[Problem]:
    """Checks the section.

    Args:
        trainer: Typed values.

    Yields:
        The problems.
    """
    section = trainer.warm_start
    if section is None:
        return
    given = [key for key in ("checkpoint", "model") if getattr(section, key) is not None]
    key = given[0] if given else "checkpoint"
    value = getattr(section, key) or ""
    if len(given) != 1:
        what = f"{' and '.join(given) or 'none of the two'} {'are both' if given else 'is'} given"
        yield Problem(_PATH, what, "exactly one of checkpoint and model", "name one")
    elif is_address(value):
        todo = "copy it to this machine"
        yield Problem(f"{_PATH}.{key}", "this is an address", "a path of this machine", todo, value=value)
    elif not section.prefix:
        what = "no weights are there" if os.path.lexists(value) else "there is no such file or folder"
        expected = {
            "checkpoint": "a checkpoint, `model.ckpt-100` of `model.ckpt-100.index`; or a folder of some",
            "model": "a folder of a SavedModel, a run's model, or pushed models",
        }[key]
        todo = "check the path: it is relative to the declaration's folder"
        yield Problem(f"{_PATH}.{key}", what, expected, todo, value=value)
    elif section.lacks_data():
        name = os.path.basename(section.prefix)
        what = f"the checkpoint is incomplete: of {name} there is the index, and not all of the weights"
        expected = f"{name}.index, and each of {name}.data-00000-of-00001 and the like"
        yield Problem(f"{_PATH}.{key}", what, expected, "copy it again from where it comes", value=value)
    if trainer.module_file is not None and RUN_FN in (functions_of(trainer.module_file) or ()):
        yield refuse_run_fn()
    if trainer.distribution.train.variable_partitioner is not None:
        what = "the weights of variables that are cut into parts are not read"
        yield Problem(
            _PATH, what, "no variable_partitioner", "remove one of them", depends=("trainer.distribution.train",)
        )


def refuse_run_fn() -> Problem:
    """Says why a run_fn's model cannot be given weights."""
    what = "a run_fn makes its own model, and begins by itself where it wants"
    return Problem(_PATH, what, "trainer.model, or a trainer_fn", "remove it", depends=("trainer.module_file",))
