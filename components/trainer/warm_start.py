"""From which weights a task's training begins, and how that is told."""

from __future__ import annotations

from typing import Optional

from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, DRY_RUN
from tfx_estimator.components.trainer.task.context import TaskContext
from tfx_estimator.components.trainer.task.fn_args import make_fn_args
from tfx_estimator.model_fn.user_models.warm_start import Matched
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.warm_start import WarmStart


def warm_start_of(context: TaskContext) -> Optional[WarmStart]:
    """Returns what is declared, or else TFX's `base_model`; a module file finds that in its `fn_args`."""
    section, task = context.settings.trainer, context.task
    if not (task.trains or task.type == DRY_RUN):
        return None
    begins = context.settings.section.warm_start
    if begins is not None and not begins.prefix:
        raise UserCodeError(
            f"trainer.warm_start: no weights are in {begins.checkpoint or begins.model}",
            expected="what was there when the pipeline was made, in a place that the training reaches",
            todo="copy it there again, or name another",
        )
    if begins is not None or section is None or section.module_file is not None or task.type == DRY_RUN:
        return begins
    base_model = make_fn_args(context.job).base_model
    if base_model and context.distribution.train.variable_partitioner is not None:
        raise UserCodeError(
            "base_model: the weights of variables that are cut into parts are not read",
            expected="no trainer.distribution.train.variable_partitioner",
            todo="remove one of the two",
        )
    return WarmStart(model=base_model) if base_model else None


def tell(context: TaskContext, matched: Matched) -> None:
    """Reports what training begins with."""
    if context.task.type == CHIEF:
        context.progress.write(Event.WARMED, text=matched.said)
        if matched.left:
            context.progress.write(Event.NOTICED, text=f"trainer.warm_start left out {matched.left}")
