"""Options that only the built-in train step supports."""

from __future__ import annotations

from tfx_estimator.model_fn.accumulation import refuse_accumulation
from tfx_estimator.model_fn.compiling import refuse_xla
from tfx_estimator.model_fn.division import refuse_division
from tfx_estimator.model_fn.parallel_parts import refuse_parallel
from tfx_estimator.pipeline.config.trainer import TrainerSection


def refuse_step_options(section: TrainerSection, brings: str) -> None:
    """Refuses what only the built-in step can do: parts of a batch, layers on several devices, a compiled step.

    Args:
        brings: What `trainer.model` is instead of a network.

    Raises:
        UserCodeError: One of these is declared.
    """
    target = section.model or ""
    refuse_accumulation(section.gradient_accumulation, target, brings)
    refuse_parallel(section, target, brings)
    refuse_division(section, target, brings)
    refuse_xla(section.xla, target, brings)
