"""What is declared and changes nothing, or less than it seems: noted, as it is not wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.gpu_checks import note_gpu
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.runtime import has_gpu

_OPTIMIZER = "trainer.optimizer"


def note_profile(declaration: Declaration) -> Iterator[str]:
    """Yields what the user should know of what is not profiled."""
    trainer = declaration.trainer
    train = trainer.distribution.train
    if trainer.profile is not None and trainer.path != "estimator" and train.asynchronous:
        yield (
            f"trainer.profile: on path: {trainer.path} with {train.strategy} only the chief is profiled, which "
            "hands out the steps; the workers, which do them, have no profile. "
            "See their shares of the time by path: estimator"
        )


def note_runtime(declaration: Declaration, target: str = "") -> Iterator[str]:
    """Yields what the user should know of the sections.

    Args:
        target: Where it is to be deployed; empty if it runs on this machine.
    """
    if not declaration.trainer.gpu.is_declared:
        return
    deployed = note_gpu(declaration, target)
    if deployed:
        yield deployed
    elif deployed is None and not has_gpu():
        yield "trainer.gpu has no effect on a machine without a GPU, such as this one"


def decays_twice(section: Optimizer) -> Optional[str]:
    """Says that adamw decays the weights twice, where `weight_decay` is written as Keras calls the other one.

    Returns:
        None where it does not, or where both are declared.
    """
    if section.name != "adamw" or not section.weight_decay or section.decoupled_weight_decay is not None:
        return None
    return (
        f"{_OPTIMIZER}.weight_decay is L2 on kernels, added to the loss, and adamw keeps its decoupled_weight_decay of "
        f"{section.resolved()['decoupled_weight_decay']:g} beside it: what Keras calls weight_decay is "
        f"{_OPTIMIZER}.decoupled_weight_decay; set that, or both"
    )
