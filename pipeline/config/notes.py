"""What is declared and changes nothing, or less than it seems: noted, as it is not wrong."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Optional

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.runtime import has_gpu
from tfx_estimator.pipeline.config.strategies import OPTIONS, taking
from tfx_estimator.pipeline.config.tune import HYPERBAND, Hyperband
from tfx_estimator.pipeline.platforms.registry import BY_NAME

_DISTRIBUTION = "trainer.distribution"
# Values that switch something off. They are right wherever that does not exist.
_OFF = (None, False, 0, "none")
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
    """Yields what the user should know of a training on this machine."""
    is_elsewhere = target or (declaration.deploy is not None and declaration.deploy.trains_elsewhere)
    if declaration.trainer.gpu.is_declared and not is_elsewhere and not has_gpu():
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


def find_misplaced(declaration: Declaration, declared: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Finds what has no effect of what is written down: dotted paths, and what to say of each.

    What is not the default is refused by the checks in most cases, and is not seen here.
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


def note_data(declaration: Declaration, target: str) -> Iterator[str]:
    """Says where the machine that compiles does not see the data: their files are not in the fingerprint then."""
    folder = declaration.data.data_dir
    # Where one process runs all steps, it looks the data up itself; the embedded digits are the same everywhere.
    if not BY_NAME[target].runs_steps or folder is None or is_address(folder) or declaration.data.dataset == "digits":
        return
    if not os.path.isdir(os.path.expanduser(folder)):
        yield (
            f"data.data_dir: {folder} is not on this machine, so that the fingerprint of the data set is without its "
            "files: where they change, steps are taken from the cache all the same. Compile where the volume is mounted"
        )
