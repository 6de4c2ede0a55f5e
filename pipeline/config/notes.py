"""Warnings and notes on declared values that have no effect, or less than expected."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from tfx_estimator.pipeline.config.known import TABLE_NAMES
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.config.table import task_of_label
from tfx_estimator.pipeline.config.task import REGRESSION
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune import HYPERBAND
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.user_data.reading import TFDS
from tfx_estimator.pipeline.user_data.table import TableReading
from tfx_estimator.pipeline.user_source.functions import Keys, is_read, params_read

_DISTRIBUTION, _OPTIMIZER, _PARAMS = "trainer.distribution", "trainer.optimizer", "trainer.params."
_OF_IMAGES = ("version", "data_dir", "download", "shards", "image_size", "channels")
_OF_TABLES = ("schema", "label", "weight", "task", "split_by")
_LOSS_KEYS = ("label_smoothing", "class_weights")


def find_warnings(case: Case, declared: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (path, warning) for declared values without effect, or with an unexpected one."""
    if unread := list(find_unread(case, declared)):
        yield unread[0], describe_unread(case.trainer, unread)
    yield from _misplaced(case, declared)
    if twice := _decays_twice(case.trainer.optimizer):
        yield "trainer.optimizer.weight_decay", twice


def _decays_twice(section: Optimizer) -> Optional[str]:
    """Warns that adamw decays twice if only `weight_decay` is set, Keras's name for decoupled_weight_decay."""
    if section.name != "adamw" or not section.weight_decay or section.decoupled_weight_decay is not None:
        return None
    return (
        f"{_OPTIMIZER}.weight_decay is L2 on kernels, added to the loss, and adamw also applies its "
        f"decoupled_weight_decay of {section.resolved()['decoupled_weight_decay']:g}: what Keras calls weight_decay is "
        f"{_OPTIMIZER}.decoupled_weight_decay; set that, or both"
    )


def _misplaced(case: Case, declared: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields (path, warning) for declared values without effect that no rule refuses."""
    trainer, tune = case.trainer, case.tune
    evaluator, cluster = case.distribution.evaluator, case.train.is_cluster
    each_checkpoint = trainer.keep_best is not None or trainer.early_stopping is not None
    is_canned = trainer.path == "estimator" and trainer.model in TABLE_NAMES["trainer.model"]
    label = task_of_label(case.data, case.table) if isinstance(case.table, TableReading) else case.data.task
    is_number = label == REGRESSION
    # Key, or section; whether it has an effect; what it is for.
    table = (
        ("trainer.steps_per_execution", trainer.path != "estimator", "the Keras paths"),
        (f"{_DISTRIBUTION}.sharding", cluster, "a cluster, and there is one process"),
        (f"{_DISTRIBUTION}.network", cluster, "a cluster, and there is one process"),
        (f"{_DISTRIBUTION}.input_batch", trainer.module_file, "an input_fn of your own, and there is no module_file"),
        (f"{_DISTRIBUTION}.start_delay_secs", evaluator, "the evaluator task, and there is none"),
        (
            f"{_DISTRIBUTION}.throttle_secs",
            evaluator or not (cluster or each_checkpoint),
            "the evaluator task, and for one process that evaluates at intervals, not each checkpoint",
        ),
        ("serving", trainer.module_file is None, "models whose export is built in, and a module file brings its own"),
        *((f"data.{key}", not case.data.is_table, "data sets of images") for key in _OF_IMAGES),
        *((f"data.{key}", case.data.is_table, "tables, such as data.csv") for key in _OF_TABLES),
        (
            "data.spans",
            not case.data.is_table or case.data.table().has_spans,
            "days, such as data.csv: day-{SPAN}/*.csv",
        ),
        ("data.split_by", not case.data.is_table or not case.data.table().patterns, "rows that are shared out"),
        ("trainer.label_smoothing", not is_number, "classes"),
        ("trainer.class_weights", not is_number, "classes"),
        (f"{_OPTIMIZER}.weight_decay", not is_canned, "networks, as the built-in models are on the Keras paths"),
        ("data.version", not case.reading or case.reading.layout == TFDS, "TFDS data sets, and these are files"),
        ("tune.hyperband", tune is None or tune.strategy == HYPERBAND, "the strategy hyperband"),
    )
    for path in declared:
        for key, has_effect, purpose in table:
            if not has_effect and f"{path}.".startswith(f"{key}."):
                yield path, f"{path} has no effect: it is for {purpose}"


def note_data(case: Case) -> Iterator[str]:
    """Notes what is not read of the data, and that their fingerprint lacks files that this machine does not see."""
    yield from case.reading.notes() if case.reading else ()
    yield from case.table.notes() if isinstance(case.table, TableReading) else ()
    folder = case.data.data_dir
    # If one process runs all steps, it looks up the data itself; the embedded digits are the same everywhere.
    if not case.platform.runs_steps or folder is None or is_address(folder) or case.data.dataset == "digits":
        return
    if not os.path.isdir(os.path.expanduser(folder)):
        yield (
            f"data.data_dir: {folder} is not on this machine, so the fingerprint of the data set does not cover its "
            "files: if they change, steps still come from the cache. Compile where the volume is mounted"
        )


def keys_of(path: str) -> Keys:
    """Returns the keys of a declared path, such as `trainer.optimizer.name`, in a model_fn's `params`; else none."""
    for key in _LOSS_KEYS:
        if f"{path}.".startswith(f"trainer.{key}."):
            # Class weights are passed by label.
            return (key,)
    if path.startswith(_PARAMS):
        return tuple(path.removeprefix(_PARAMS).split("."))
    return tuple(path.removeprefix("trainer.").split(".")) if path.startswith(f"{_OPTIMIZER}.") else ()


def find_unread(case: Case, declared: Iterable[str]) -> Iterator[str]:
    """Yields the declared paths that the user's code does not read, as far as its text tells."""
    passed = {path: keys for path in declared if (keys := keys_of(path))}
    if not passed or not case.user_code:
        return
    is_file = case.trainer.module_file is not None
    read = set() if is_file else params_read(case.trainer.target, case.search_paths)
    if read is not None:
        yield from (path for path, keys in passed.items() if not is_read(keys, read))


def describe_unread(trainer: TrainerSection, paths: Sequence[str]) -> str:
    """Returns the warning that values have no effect, and why."""
    which = ", ".join(map(inline, paths))
    verb, them = ("has", "it") if len(paths) == 1 else ("have", "them")
    if trainer.module_file is not None:
        return f"{which} {verb} no effect: a module file brings its own"
    return f"{which} {verb} no effect: {trainer.model} does not read {them} from params"
