"""What is declared and changes nothing, or less than it seems: noted, as it is not wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Optional

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.gpu_checks import note_gpu
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.runtime import has_gpu
from tfx_estimator.pipeline.config.trainer import TrainerSection

_TRAIN, _OPTIMIZER = "trainer.distribution.train", "trainer.optimizer"


def note_techniques(declaration: Declaration, target: str = "") -> Iterator[str]:
    """Says which techniques send nothing that they could make less, or later.

    Args:
        declaration: Typed values.
        target: Where it is to be deployed; empty if it runs on this machine.
    """
    trainer = declaration.trainer
    train = trainer.distribution.train
    if trainer.sync_every is not None and train.is_collective and train.worker_count == 1:
        yield f"trainer.sync_every has no effect: {_TRAIN}.workers is 1, which has nobody to average its weights with"
    # Without declared devices there may be any number of GPUs.
    if not train.in_step or (not train.devices.text and _may_have_gpus(declaration, target)):
        return
    if train.replicas == 1:
        given = {
            "gradient_compression": train.gradient_compression != "none",
            "bytes_per_pack": train.bytes_per_pack != 0,
            "num_packs": train.num_packs is not None,
        }
        for name in (name for name, is_given in given.items() if is_given and train.takes(name)):
            yield f"{_TRAIN}.{name} has no effect: there is one replica, which sends its gradients to nobody"
    elif train.gradient_compression != "none" and not train.is_cluster and not train.devices.gpu:
        yield (
            f"{_TRAIN}.gradient_compression saves nothing on logical CPUs, which have one memory: it rounds gradients, "
            "and takes the time for it"
        )


def note_profile(declaration: Declaration) -> Iterator[str]:
    """Yields what the user should know of what is not profiled.

    Args:
        declaration: Typed values.
    """
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
        declaration: Typed values.
        target: Where it is to be deployed; empty if it runs on this machine.
    """
    if not declaration.trainer.gpu.is_declared:
        return
    deployed = note_gpu(declaration, target)
    if deployed:
        yield deployed
    elif deployed is None and not has_gpu():
        yield "trainer.gpu has no effect on a machine without a GPU, such as this one"


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


def decays_twice(section: Optimizer) -> Optional[str]:
    """Says that adamw decays the weights twice, where `weight_decay` is written as Keras calls the other one.

    Args:
        section: Typed values.

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


def ends_before_boundaries(section: Optimizer, steps: Optional[int]) -> Optional[str]:
    """Says that training ends before some rates of `piecewise` are used.

    Args:
        section: Typed values.
        steps: `trainer.train_steps`; None is not known.

    Returns:
        None where each is used, or the steps are not known.
    """
    boundaries, values = section.boundaries or (), section.values or ()
    # A boundary is the last step of its rate, counted from 0.
    late = [each for each in boundaries if steps and each >= steps - 1]
    if section.schedule != "piecewise" or not late:
        return None
    beyond = ", ".join(f"{each:,}" for each in late)
    unused = ", ".join(f"{each:g}" for each in values[-len(late) :])
    return (
        f"{_OPTIMIZER}.boundaries: training ends at step {steps:,} (trainer.train_steps), not beyond {beyond}: of "
        f"{_OPTIMIZER}.values {unused} {'are' if len(late) > 1 else 'is'} never used"
    )


def _may_have_gpus(declaration: Declaration, target: str) -> bool:
    """May there be GPUs where it is trained."""
    deployed = note_gpu(declaration, target)
    return has_gpu() if deployed is None else not deployed
