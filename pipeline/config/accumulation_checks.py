"""Checks of `trainer.gradient_accumulation`: who would cut the batch, and whether it can be cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.strategy_checks import replica_batch
from tfx_estimator.pipeline.config.whole_model_fn import find_own

_PATH = "trainer.gradient_accumulation"


def check_accumulation(declaration: Declaration, search_paths: Sequence[str]) -> Iterator[Problem]:
    """Checks that the built-in step trains, and that each part of a batch has an example.

    Args:
        declaration: Typed values.
        search_paths: Folders where the user's modules are looked for before `sys.path`.

    Yields:
        The problems.
    """
    trainer = declaration.trainer
    parts = trainer.gradient_accumulation
    if parts == 1:
        return
    if whose := find_own(trainer, search_paths):
        yield Problem(
            _PATH,
            f"{whose} computes its gradients itself: its batches would stay whole",
            "1; or trainer.model with a function that returns the network",
            "remove it, and accumulate in your own step",
            value=str(parts),
            depends=("trainer.module_file", "trainer.model"),
        )
        return
    train = "trainer.distribution.train"
    batch = replica_batch(declaration)
    if batch is not None and parts > batch:
        yield Problem(
            _PATH,
            f"each replica has {batch} of the {trainer.global_batch_size} examples of a step: "
            f"{parts} parts are more than these",
            f"at most {batch}",
            "lower it, or raise trainer.global_batch_size, which is the batch of an update",
            value=str(parts),
            depends=("trainer.global_batch_size", f"{train}.strategy", f"{train}.workers"),
        )
