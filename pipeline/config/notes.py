"""What is declared and changes nothing, or less than it seems: noted, as it is not wrong."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune import HYPERBAND
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.user_source.functions import Keys, is_read, params_read

_DISTRIBUTION, _OPTIMIZER, _PARAMS = "trainer.distribution", "trainer.optimizer", "trainer.params."
_OF_THE_LOSS = ("label_smoothing", "class_weights")


def find_warnings(case: Case, declared: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What has no effect, or not the one that is meant: paths, and what to say of each."""
    if unread := list(find_unread(case, declared)):
        yield unread[0], describe_unread(case.trainer, unread)
    yield from _misplaced(case, declared)
    if twice := _decays_twice(case.trainer.optimizer):
        yield "trainer.optimizer.weight_decay", twice


def _decays_twice(section: Optimizer) -> Optional[str]:
    """Says that adamw decays the weights twice, where `weight_decay` alone is written, as Keras calls the other one."""
    if section.name != "adamw" or not section.weight_decay or section.decoupled_weight_decay is not None:
        return None
    return (
        f"{_OPTIMIZER}.weight_decay is L2 on kernels, added to the loss, and adamw keeps its decoupled_weight_decay of "
        f"{section.resolved()['decoupled_weight_decay']:g} beside it: what Keras calls weight_decay is "
        f"{_OPTIMIZER}.decoupled_weight_decay; set that, or both"
    )


def _misplaced(case: Case, declared: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Finds what has no effect of what is written down, and no rule refuses: dotted paths, and what to say of each."""
    trainer, tune = case.trainer, case.tune
    evaluator, cluster = case.distribution.evaluator, case.train.is_cluster
    each_checkpoint = trainer.keep_best is not None or trainer.early_stopping is not None
    # Key, or section; whether it is at work; of what it is.
    table = (
        ("trainer.steps_per_execution", trainer.path != "estimator", "the Keras paths"),
        (f"{_DISTRIBUTION}.sharding", cluster, "a cluster, and there is one process"),
        (f"{_DISTRIBUTION}.network", cluster, "a cluster, and there is one process"),
        (f"{_DISTRIBUTION}.input_batch", trainer.module_file, "an input_fn of your own, and there is no module_file"),
        (f"{_DISTRIBUTION}.start_delay_secs", evaluator, "the evaluator task, and there is none"),
        (
            f"{_DISTRIBUTION}.throttle_secs",
            evaluator or not (cluster or each_checkpoint),
            "the evaluator task, and of one process that evaluates now and then, not each checkpoint",
        ),
        ("serving", trainer.module_file is None, "models whose export is built in, and a module file brings its own"),
        ("tune.hyperband", tune is None or tune.strategy == HYPERBAND, "the strategy hyperband"),
    )
    for path in declared:
        for key, works, whose in table:
            if not works and f"{path}.".startswith(f"{key}."):
                yield path, f"{path} has no effect: it is of {whose}"


def note_tune(case: Case) -> Iterator[str]:
    """Says what becomes of a schedule where trials go on."""
    optimizer = case.trainer.optimizer
    if case.tune is not None and case.tune.strategy == HYPERBAND and optimizer.ends_with_training:
        yield (
            "tune.strategy hyperband: a trial that goes on does so from its checkpoint, which was trained with the "
            f"schedule {optimizer.schedule} of fewer steps"
        )


def note_data(case: Case) -> Iterator[str]:
    """Says where the machine that compiles does not see the data: their files are not in the fingerprint then."""
    folder = case.data.data_dir
    # Where one process runs all steps, it looks the data up itself; the embedded digits are the same everywhere.
    if not case.platform.runs_steps or folder is None or is_address(folder) or case.data.dataset == "digits":
        return
    if not os.path.isdir(os.path.expanduser(folder)):
        yield (
            f"data.data_dir: {folder} is not on this machine, so that the fingerprint of the data set is without its "
            "files: where they change, steps are taken from the cache all the same. Compile where the volume is mounted"
        )


def keys_of(path: str) -> Keys:
    """Returns the keys in a model_fn's `params` of `trainer.optimizer.name`, say; none for what is not handed on."""
    for key in _OF_THE_LOSS:
        if f"{path}.".startswith(f"trainer.{key}."):
            # Weights arrive by label, whichever class they were declared for.
            return (key,)
    if path.startswith(_PARAMS):
        return tuple(path.removeprefix(_PARAMS).split("."))
    return tuple(path.removeprefix("trainer.").split(".")) if path.startswith(f"{_OPTIMIZER}.") else ()


def find_unread(case: Case, declared: Iterable[str]) -> Iterator[str]:
    """Finds what is declared and the trained code does not take, by dotted path; nothing where its text is mute."""
    told = {path: keys for path in declared if (keys := keys_of(path))}
    if not told or not case.user_code:
        return
    is_file = case.trainer.module_file is not None
    read = set() if is_file else params_read(case.trainer.target, case.search_paths)
    if read is not None:
        yield from (path for path, keys in told.items() if not is_read(keys, read))


def describe_unread(trainer: TrainerSection, paths: Sequence[str]) -> str:
    """Says that values have no effect, and why."""
    which = ", ".join(map(inline, paths))
    verb, them = ("has", "it") if len(paths) == 1 else ("have", "them")
    if trainer.module_file is not None:
        return f"{which} {verb} no effect: a module file brings its own"
    return f"{which} {verb} no effect: {trainer.model} does not take {them} out of params"
