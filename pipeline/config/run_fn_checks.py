"""Checks of a distribution beside a module file whose `run_fn` trains by itself, by its own strategy."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.code_checks import defines
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem

_PATH = "trainer.distribution"
_FILE = "trainer.module_file"


def check_run_fn(declaration: Declaration) -> Iterator[Problem]:
    """Checks what a `run_fn` could not be given.

    Args:
        declaration: Typed values.

    Yields:
        The problems; none where the module file has a `trainer_fn` as well, which is then the one that is used.
    """
    trainer = declaration.trainer
    if trainer.module_file is None or defines(trainer.module_file, "trainer_fn"):
        return
    distribution = trainer.distribution
    strategy, path = distribution.train.strategy, f"{_PATH}.train.strategy"
    if distribution.train.distributes and not distribution.train.is_cluster:
        yield Problem(
            path,
            "a run_fn makes its own tf.distribute strategy, so this one could not be given to it",
            "one_device, or a cluster, which TF_CONFIG tells a run_fn of; or a trainer_fn in the module file",
            f"make the strategy {strategy} inside the run_fn, and remove it here",
            value=strategy,
            depends=(_FILE,),
        )
    strategy, path = distribution.eval.strategy, f"{_PATH}.eval.strategy"
    if distribution.eval.distributes:
        yield Problem(
            path,
            "a run_fn evaluates by itself, so this strategy could not be given to it",
            "one_device; or a trainer_fn in the module file",
            "remove it",
            value=strategy,
            depends=(_FILE,),
        )
    if distribution.evaluator and distribution.train.is_cluster:
        yield Problem(
            f"{_PATH}.evaluator",
            "a run_fn evaluates by itself, so an evaluator task would have nothing to do",
            "false; or a trainer_fn in the module file",
            "remove it",
            value="true",
            depends=(_FILE,),
        )
