"""Checks of `trainer.threads` and `trainer.gpu`."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.gpu_checks import note_gpu
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.runtime import has_gpu
from tfx_estimator.pipeline.config.trainer import TrainerSection


def check_runtime(trainer: TrainerSection) -> Iterator[Problem]:
    """Checks the sections.

    Args:
        trainer: Typed values.

    Yields:
        The problems.
    """
    threads, gpu, train = trainer.threads, trainer.gpu, trainer.distribution.train
    if threads.intra_op is not None and trainer.intra_op_threads is not None:
        yield Problem(
            "trainer.intra_op_threads",
            "trainer.threads.intra_op is the same, and is given as well",
            "one of the two",
            "remove it",
            value=str(trainer.intra_op_threads),
            depends=("trainer.threads.intra_op",),
        )
    least = train.worker_count + 1
    if train.asynchronous and threads.inter_op is not None and threads.inter_op < least:
        yield Problem(
            "trainer.threads.inter_op",
            f"the servers of parameter_server, of {train.worker_count} workers, would wait for each other for ever",
            f"{least} or more, one more than there are workers",
            "raise it, or remove it",
            value=str(threads.inter_op),
            depends=("trainer.distribution.train.strategy", "trainer.distribution.train.workers"),
        )
    if gpu.memory_growth and gpu.memory_limit_mb is not None:
        yield Problem(
            "trainer.gpu.memory_limit_mb",
            "TensorFlow takes a limit at once, and cannot grow up to it as well",
            "this, or memory_growth",
            "remove one of them",
            value=str(gpu.memory_limit_mb),
            depends=("trainer.gpu.memory_growth",),
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
