"""Checks of a distribution beside a `run_fn`, which trains and evaluates by itself."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.user_source.trainer_functions import RunFn

_PATH = "trainer.distribution"


def check_run_fn(distribution: Distribution, run_fn: RunFn, instead: str = "") -> Iterator[Problem]:
    """Checks what a `run_fn` could not be given.

    Args:
        distribution: Typed values.
        run_fn: What its text tells.
        instead: How to name the trainer_fn that there is as well, if there is one.

    Yields:
        The problems.
    """
    strategy, path = distribution.train.strategy, f"{_PATH}.train.strategy"
    if distribution.train.distributes and run_fn.estimator:
        alone = "its chief would train alone, and export nothing"
        yield Problem(
            path,
            f"this run_fn trains an Estimator ({run_fn.estimator}): "
            f"{alone if distribution.train.is_cluster else 'it would train on one device, without a word'}",
            "a trainer_fn, whose Estimator is then trained under the strategy; or one_device",
            instead or "move what makes the Estimator and its specs into a `def trainer_fn(fn_args, schema)`",
            value=strategy,
        )
    elif distribution.train.takes("tpu"):
        yield Problem(
            path,
            "a run_fn connects to its TPU by itself, so this strategy could not be given to it",
            "one_device, mirrored, central_storage, or a cluster; or a trainer_fn",
            instead or f"make the strategy {strategy} inside the run_fn, and remove it here",
            value=strategy,
        )
    strategy, path = distribution.eval.strategy, f"{_PATH}.eval.strategy"
    if distribution.eval.distributes:
        yield Problem(
            path,
            "a run_fn evaluates by itself, under the strategy that it trains by",
            "one_device; or a trainer_fn",
            instead or "remove it",
            value=strategy,
        )
    if distribution.evaluator and distribution.train.is_cluster:
        yield Problem(
            f"{_PATH}.evaluator",
            "a run_fn evaluates by itself, so an evaluator task would have nothing to do",
            "false; or a trainer_fn",
            instead or "remove it",
            value="true",
        )
