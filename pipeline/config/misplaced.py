"""What is written down for another path, strategy or task than the declared ones: it has no effect, and is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.strategies import OPTIONS, taking
from tfx_estimator.pipeline.config.tune import HYPERBAND, Hyperband

_DISTRIBUTION = "trainer.distribution"
# Values that switch something off. They are right wherever that does not exist.
_OFF = (None, False, 0, "none")


def find_misplaced(declaration: Declaration, declared: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Finds what has no effect. What is not the default is refused by the checks in most cases, and is not seen here.

    Args:
        declared: Dotted paths of those that are written down, not defaults.

    Yields:
        A dotted path, and what to say of it.
    """
    found = dict(_of_others(declaration))
    for path in declared:
        if path in found:
            yield path, f"{path} has no effect: it is of {found[path]}"


def _of_others(declaration: Declaration) -> Iterator[tuple[str, str]]:
    """(dotted path, whose it is)."""
    trainer, tune = declaration.trainer, declaration.tune
    distribution = trainer.distribution
    if trainer.path == "estimator":
        yield "trainer.steps_per_execution", "the Keras paths"
    elif distribution.train.asynchronous:
        yield (
            "trainer.steps_per_execution",
            "the strategies that train in step; workers of parameter servers get one at a time",
        )
    if trainer.optimizer.schedule == "piecewise":
        yield "trainer.optimizer.learning_rate", "the other schedules; piecewise has its rates in values"
    for which, section in (("train", distribution.train), ("eval", distribution.eval)):
        for key in OPTIONS:
            if not section.takes(key) and getattr(section, key, None) not in _OFF:
                yield f"{_DISTRIBUTION}.{which}.{key}", f"the strategy {' or '.join(taking(key))}"
    if not distribution.train.is_cluster:
        for key in ("sharding", "network"):
            yield f"{_DISTRIBUTION}.{key}", f"a cluster; {distribution.train.strategy} has one process"
    if not trainer.module_file:
        yield f"{_DISTRIBUTION}.input_batch", "an input_fn of your own, and there is no module_file"
    if not distribution.evaluator:
        yield f"{_DISTRIBUTION}.start_delay_secs", "the evaluator task, and there is none"
        if distribution.train.is_cluster:
            yield f"{_DISTRIBUTION}.throttle_secs", "the evaluator task, and there is none"
        elif trainer.keep_best or trainer.early_stopping:
            whose = "trainings without keep_best and early_stopping, for which each checkpoint is evaluated"
            yield f"{_DISTRIBUTION}.throttle_secs", whose
    if tune is not None and tune.strategy != HYPERBAND:
        for key in Hyperband.__fields__:
            yield f"tune.hyperband.{key}", "the strategy hyperband"
