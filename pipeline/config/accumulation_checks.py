"""Checks of `gradient_accumulation` and `parallel_parts`: who would cut the batch, and whether it can be cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.config.builtin import NORMALISING
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.parts import AUTO
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.strategy_checks import replica_batch
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.whole_model_fn import find_own

_PATH, _PARALLEL = "trainer.gradient_accumulation", "trainer.parallel_parts"
_BATCH = ("trainer.global_batch_size", "trainer.distribution.train.strategy", "trainer.distribution.train.workers")


def check_accumulation(declaration: Declaration, search_paths: Sequence[str]) -> Iterator[Problem]:
    """Checks that the built-in step trains, and that each part of a batch has an example.

    Args:
        declaration: Typed values.
        search_paths: Folders where the user's modules are looked for before `sys.path`.

    Yields:
        The problems.
    """
    trainer = declaration.trainer
    parts, beside = trainer.gradient_accumulation, _declared_beside(trainer)
    whose = find_own(trainer, search_paths) if parts > 1 or beside > 1 else ""
    for path, count, todo in (
        (_PATH, parts, "remove it, and accumulate in your own step"),
        (_PARALLEL, beside, "remove it, and cut the batch in your own step"),
    ):
        if whose and count > 1:
            yield Problem(
                path,
                f"{whose} computes its gradients itself: its batches would stay whole",
                "1; or trainer.model with a function that returns the network",
                todo,
                value=str(count),
                depends=("trainer.module_file", "trainer.model"),
            )
    if whose or parts == beside == 1:
        return
    batch = replica_batch(declaration)
    if parts > 1 and batch is not None and parts > batch:
        yield Problem(
            _PATH,
            f"each replica has {batch} of the {trainer.global_batch_size} examples of a step: "
            f"{parts} parts are more than these",
            f"at most {batch}",
            "lower it, or raise trainer.global_batch_size, which is the batch of an update",
            value=str(parts),
            depends=_BATCH,
        )
    elif beside > 1 and batch and parts * beside > batch:
        of_one = f" and trainer.gradient_accumulation makes {parts} parts of them," if parts > 1 else ""
        yield Problem(
            _PARALLEL,
            f"each replica has {batch} of the {trainer.global_batch_size} examples of a step,{of_one} too few for "
            f"{beside} at the same time",
            f"at most {batch // parts}",
            "lower it, or raise trainer.global_batch_size, which is the batch of an update",
            value=str(beside),
            depends=(*_BATCH, _PATH),
        )
    if beside > 1:
        yield from _whole_steps(trainer)


def _declared_beside(trainer: TrainerSection) -> int:
    """Parts at the same time, where they are counted: `auto` makes none where there can be none."""
    return 1 if trainer.parallel_parts == AUTO else int(trainer.parallel_parts)


def _whole_steps(trainer: TrainerSection) -> Iterator[Problem]:
    """What computes a batch as a whole."""
    strategy = "trainer.distribution.train.strategy"
    for path, declared, why in (
        ("trainer.xla", bool(trainer.xla), "XLA makes one program of a step, whose parts follow one another"),
        ("trainer.model_parallel", trainer.model_parallel is not None, "its layers are on several devices already"),
        (
            "trainer.pipeline_parallel",
            trainer.pipeline_parallel is not None,
            "its stages work at the same time",
        ),
        (strategy, trainer.distribution.train.takes("tpu"), "the CPUs of a TPU's host compute no step"),
    ):
        if declared:
            yield Problem(
                _PARALLEL,
                f"there is {path} as well: {why}" if path != strategy else f"the strategy is tpu: {why}",
                "one of the two",
                f"remove one of them: {_PARALLEL} or {path}",
                value=str(trainer.parallel_parts),
                depends=(path,),
            )
    if trainer.model in NORMALISING:
        yield Problem(
            _PARALLEL,
            f"{trainer.model} normalises by the statistics of a batch, which would be those of a part of it",
            "a network without batch normalisation",
            "remove it, or choose another network",
            value=str(trainer.parallel_parts),
            depends=("trainer.model",),
        )
