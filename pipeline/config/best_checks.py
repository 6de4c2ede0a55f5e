"""Checks of `trainer.keep_best` and `trainer.early_stopping`: what would decide nothing is refused, with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Optional

from tfx_estimator.pipeline.config.best import METRICS, EarlyStopping
from tfx_estimator.pipeline.config.builtin import SHORT_NAMES
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, functions_of

_EVALUATOR, _STRATEGY = "trainer.distribution.evaluator", "trainer.distribution.train.strategy"


def check_best(declaration: Declaration) -> Iterator[Problem]:
    """Checks both sections.

    Args:
        declaration: Typed values.

    Yields:
        The problems.
    """
    trainer = declaration.trainer
    for key in ("keep_best", "early_stopping"):
        path, section = f"trainer.{key}", getattr(trainer, key)
        if section is None:
            continue
        metric = f"{path}.metric"
        if trainer.module_file and (functions_of(trainer.module_file) or ("",))[0] == RUN_FN:
            yield Problem(
                path,
                "a run_fn trains, evaluates and saves by itself, so this could not be given to it",
                "null; or a trainer_fn",
                "remove it, and do it inside the run_fn: Keras has ModelCheckpoint and EarlyStopping",
                depends=("trainer.module_file",),
            )
        train = trainer.distribution.train
        if train.is_cluster and not trainer.distribution.evaluator:
            yield Problem(
                path,
                f"it goes by evaluations while training, and the processes of {train.strategy} train only",
                f"{_EVALUATOR}: true, a task of its own that evaluates each checkpoint",
                f"set {_EVALUATOR} to true, or remove {path}",
                depends=(_STRATEGY, _EVALUATOR),
            )
        if trainer.model in SHORT_NAMES["trainer.model"] and section.metric not in METRICS:
            near = nearest(section.metric, METRICS)
            yield Problem(
                metric,
                f"the evaluation of {trainer.model} reports no `{section.metric}`",
                f"one of {', '.join(METRICS)}",
                f"did you mean `{near}`?" if near else "choose one of them",
                value=section.metric,
                depends=("trainer.model", "trainer.module_file"),
            )
        elif section.better is None:
            near = nearest(section.metric, METRICS)
            yield Problem(
                metric,
                f"its name does not tell whether more or less of `{section.metric}` is better",
                f"{path}.mode: max, or min",
                f"did you mean `{near}`? If your evaluation reports `{section.metric}`, set {path}.mode"
                if near
                else f"set {path}.mode",
                value=section.metric,
                depends=(f"{path}.mode",),
            )
        if isinstance(section, EarlyStopping) and trainer.train_steps and section.min_steps >= trainer.train_steps:
            yield Problem(
                f"{path}.min_steps",
                "training ends before any evaluation counts",
                f"less than trainer.train_steps, {trainer.train_steps}",
                "lower it, or train longer",
                value=str(section.min_steps),
                depends=("trainer.train_steps",),
            )


def stops_too_late(trainer: TrainerSection) -> Optional[str]:
    """Says that early stopping has too few evaluations to end a training before its last step.

    Args:
        trainer: Typed values.

    Returns:
        None where it may end one, or is not declared, or the steps are not known.
    """
    rule, steps = trainer.early_stopping, trainer.train_steps
    if rule is None or not steps:
        return None
    every = trainer.checkpoint_steps
    # The number of evaluations that count: one at each checkpoint, and one at the last step.
    count = math.ceil(steps / every) - max(math.ceil(rule.min_steps / every) - 1, 0)
    # One more, because the first evaluation that counts is always an improvement.
    if rule.patience + 1 < count:
        return None
    evaluations = "1 evaluation counts" if count == 1 else f"at most {count:,} evaluations count"
    return (
        f"trainer.early_stopping.patience, {rule.patience:,}, is too much to end training early: {evaluations}, one at "
        f"each {every:,} steps (trainer.save_checkpoints_steps)"
    )
