"""Checks of `trainer.keep_best` and `trainer.early_stopping`: what would decide nothing is refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.best import METRICS
from tfx_estimator.pipeline.config.builtin import SHORT_NAMES
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem, nearest
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
