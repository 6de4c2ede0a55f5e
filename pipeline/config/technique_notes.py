"""What is declared of a technique, and changes nothing under the declared strategy: noted, as it is not wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.gpu_checks import note_gpu
from tfx_estimator.pipeline.config.runtime import has_gpu

_TRAIN = "trainer.distribution.train"


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


def _may_have_gpus(declaration: Declaration, target: str) -> bool:
    """May there be GPUs where it is trained."""
    deployed = note_gpu(declaration, target)
    return has_gpu() if deployed is None else not deployed
