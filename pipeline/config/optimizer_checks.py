"""Checks of the `trainer.optimizer` section: options of another optimizer or schedule, and what goes ill together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.optimizer_options import OF_OPTIMIZERS, OF_SCHEDULES, REQUIRED
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.yaml_text import inline

_PATH = "trainer.optimizer"
_CLIPS = ("clip_norm", "global_clip_norm", "clip_value")


def check_optimizer(declaration: Declaration) -> Iterator[Problem]:
    """Checks the section."""
    section = declaration.trainer.optimizer
    yield from _of_others(section, "name", "optimizer", OF_OPTIMIZERS)
    yield from _of_others(section, "schedule", "schedule", OF_SCHEDULES)
    yield from _warmup(section, declaration.trainer.train_steps)
    yield from _piecewise(section)
    yield from _scaling(declaration)
    clips = [key for key in _CLIPS if getattr(section, key) is not None]
    for key in clips[1:]:
        what = f"{_PATH}.{clips[0]} is given as well"
        todo = f"set one to null: --set {_PATH}.{clips[0]}=null"
        yield _problem(section, key, what, "at most one of " + ", ".join(_CLIPS), todo, f"{_PATH}.{clips[0]}")


def _of_others(section: Optimizer, key: str, noun: str, table: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    """Options of another optimizer or schedule than the declared one, and those that it needs."""
    chosen = getattr(section, key)
    for option, owners in table.items():
        value = getattr(section, option)
        if value is None and owners.get(chosen) is REQUIRED:
            what = f"the {noun} `{chosen}` needs it"
            yield _problem(section, option, what, "a value", f"set {_PATH}.{option}", f"{_PATH}.{key}")
        elif value is not None and chosen not in owners:
            whose = " or ".join(f"`{owner}`" for owner in owners)
            what = f"the {noun} `{chosen}` has no {option}"
            todo = f"remove it, or set {_PATH}.{key} to {' or '.join(owners)}"
            yield _problem(
                section, option, what, f"{option} only where {_PATH}.{key} is {whose}", todo, f"{_PATH}.{key}"
            )


def _warmup(section: Optimizer, steps: int | None) -> Iterator[Problem]:
    if steps is not None and section.warmup_steps >= steps:
        what = "the warm-up does not end before training does"
        expected = f"less than trainer.train_steps, {steps}"
        yield _problem(section, "warmup_steps", what, expected, "lower it, or train longer", "trainer.train_steps")
    if section.schedule == "one_cycle" and section.warmup_steps:
        what = "the schedule `one_cycle` has a warm-up of its own: the first 30 % of the steps"
        yield _problem(section, "warmup_steps", what, "0", "remove it, or choose another schedule", f"{_PATH}.schedule")


def _scaling(declaration: Declaration) -> Iterator[Problem]:
    """Scales the rate where a step is not of more examples with more replicas."""
    section, trainer = declaration.trainer.optimizer, declaration.trainer
    if section.scaling == "none":
        return
    expected, todo = "none, or a strategy whose replicas train in step", "remove it, and set the learning rate itself"
    if trainer.distribution.train.asynchronous:
        what = "no replicas of parameter_server are in sync: each worker's step is an update of its own"
        depends = "trainer.distribution.train.strategy"
        yield _problem(section, "scaling", what, expected, f"{todo}, or train with another strategy", depends)
    if trainer.sync_every is not None:
        what = "with trainer.sync_every each process's step is of the mean over its own examples, not over those of all"
        sync = "trainer.sync_every"
        yield _problem(section, "scaling", what, f"none, or no {sync}", f"{todo}, or remove {sync}", sync)


def _piecewise(section: Optimizer) -> Iterator[Problem]:
    if section.schedule != "piecewise":
        return
    depends = f"{_PATH}.schedule"
    boundaries, values = section.boundaries, section.values
    if boundaries is not None and list(boundaries) != sorted({*boundaries}):
        yield _problem(section, "boundaries", "they do not grow", "steps, each after the last", "sort them", depends)
    if boundaries is not None and values is not None and len(values) != len(boundaries) + 1:
        what = f"{len(boundaries)} boundaries part {len(boundaries) + 1} rates, not {len(values)}"
        expected = f"{len(boundaries) + 1} numbers, one more than {_PATH}.boundaries"
        yield _problem(section, "values", what, expected, "add or remove some", depends, f"{_PATH}.boundaries")
    if section.learning_rate != section.__fields__["learning_rate"].default:
        what = "the schedule `piecewise` has its rates in values"
        yield _problem(section, "learning_rate", what, f"{_PATH}.values alone", "remove it", depends)


def _problem(section: Optimizer, key: str, what: str, expected: str, todo: str, *depends: str) -> Problem:
    value = getattr(section, key)
    written = "" if value is None else inline(list(value) if isinstance(value, tuple) else value)
    return Problem(f"{_PATH}.{key}", what, expected, todo, value=written, depends=depends)
