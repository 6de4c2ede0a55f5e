"""Checks between several values of a declaration, each of which is right by itself."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfx_estimator.pipeline.config.beam_checks import check_beam
from tfx_estimator.pipeline.config.class_weights import check_class_weights
from tfx_estimator.pipeline.config.code_checks import check_module_file, check_target
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.evaluator_checks import check_evaluator
from tfx_estimator.pipeline.config.gpu_checks import check_gpus
from tfx_estimator.pipeline.config.image_folder import split_folders
from tfx_estimator.pipeline.config.paths import is_address, is_path, is_table, is_tfds_name, reject_folder, reject_store
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.deploy import DEPLOY
from tfx_estimator.pipeline.config.rules.distribution import DISTRIBUTION
from tfx_estimator.pipeline.config.rules.optimizer import OPTIMIZER
from tfx_estimator.pipeline.config.rules.rule import broken
from tfx_estimator.pipeline.config.rules.run_fn import RUN_FN
from tfx_estimator.pipeline.config.rules.step import STEP
from tfx_estimator.pipeline.config.rules.training import TRAINING
from tfx_estimator.pipeline.config.splits import EXAMPLES, find_overlap, reject_split, split_names, suggest_splits
from tfx_estimator.pipeline.config.travel_checks import check_credentials, check_travel
from tfx_estimator.pipeline.platforms import registry

RULES = (*TRAINING, *OPTIMIZER, *STEP, *DISTRIBUTION, *RUN_FN)


def check(declaration: Declaration, search_paths: Sequence[str], target: str = "") -> list[Problem]:
    """Runs every check; the target is where the pipeline is to be deployed, empty if it runs on this machine."""
    return [
        *_data(declaration),
        *_code(declaration, search_paths),
        *check_class_weights(declaration),
        *broken((*RULES, *DEPLOY, *registry.own_rules()), Case(declaration, search_paths, target)),
        *check_evaluator(declaration),
        # With a target, these paths are places of another machine.
        *(() if target else _places(declaration)),
        *check_beam(declaration, target),
        *check_gpus(declaration, target),
        *check_credentials(declaration, target),
        *check_travel(declaration, search_paths, target),
    ]


def _data(declaration: Declaration) -> Iterator[Problem]:
    data = declaration.data
    if not data.dataset.strip():
        yield Problem("data.dataset", "it is empty", "a data set's name or folder", "name one: dataset: mnist")
    elif is_path(data.dataset) and not is_address(data.dataset):
        yield from _check_folder_or_table(data.dataset)
    known, declared = _splits_of(data.dataset), data.splits.declared()
    for key, expression in declared.items():
        path = f"data.splits.{key}"
        if reason := reject_split(expression):
            todo = "see https://www.tensorflow.org/datasets/splits"
            yield Problem(path, reason, EXAMPLES, todo, value=expression)
        elif known and (wrong := sorted(set(split_names(expression)) - {*known, "all"})):
            what = f"the data set {os.path.basename(data.dataset)} has no split `{wrong[0]}`"
            expected = (
                f"its splits: {', '.join(known)}" if known[1:] else f"its one split, `{known[0]}`, or parts of it"
            )
            todo = f"set {suggest_splits(known, 'test' in declared)}"
            yield Problem(path, what, expected, todo, value=expression, depends=("data.dataset",))
    yield from _overlaps({key: each for key, each in declared.items() if not reject_split(each)}, known)


def _overlaps(declared: dict[str, str], known: Sequence[str]) -> Iterator[Problem]:
    for (one, first), (other, second) in itertools.combinations(declared.items(), 2):
        if shared := find_overlap(first, second):
            named = {name: None for each in (first, second) for name in split_names(each) if name != "all"}
            what = f"it overlaps with data.splits.{one}: {first}: both hold {shared}"
            expected = f"in {other} no example that {one} holds"
            todo = f"set {suggest_splits(known or list(named) or ['train'], 'test' in declared)}"
            path = f"data.splits.{other}"
            yield Problem(path, what, expected, todo, value=second, depends=(f"data.splits.{one}",))


def _check_folder_or_table(dataset: str) -> Iterator[Problem]:
    if os.path.isfile(dataset) if is_table(dataset) else os.path.isdir(dataset):
        return
    todo = "check the path: it is relative to the declaration's folder"
    what = f"there is no such {'file' if is_table(dataset) else 'folder'}"
    if os.path.exists(dataset):
        what = "this is a folder" if os.path.isdir(dataset) else "this is a file of another kind"
    yield Problem("data.dataset", what, "a folder, a CSV or Parquet file, or a data set's name", todo, value=dataset)


def _splits_of(dataset: str) -> list[str]:
    """The splits that a data set has, where that is known before it is opened."""
    if dataset == "digits":
        return ["train"]
    if not is_path(dataset) or is_address(dataset) or not os.path.isdir(dataset):
        return []
    try:
        return list(split_folders(Path(dataset)))
    except OSError:
        return []  # told when it is opened


def _code(declaration: Declaration, search_paths: Sequence[str]) -> Iterator[Problem]:
    """Checks that the code that is named is there, as text."""
    data, trainer, transform = declaration.data, declaration.trainer, declaration.transform
    if ":" in data.dataset and not is_path(data.dataset) and not is_tfds_name(data.dataset):
        yield from check_target("data.dataset", data.dataset, search_paths, "class")
    functions = {"trainer.model": trainer.model, "transform.preprocessing_fn": transform.preprocessing_fn}
    for path, function in functions.items():
        if function is not None:
            yield from check_target(path, function, search_paths)
    files = {
        "trainer.module_file": (trainer.module_file, ("trainer_fn", "run_fn")),
        "transform.module_file": (transform.module_file, ("preprocessing_fn",)),
    }
    for path, (file, wanted) in files.items():
        if file is not None:
            yield from check_module_file(path, file, wanted, search_paths)


def _places(declaration: Declaration) -> Iterator[Problem]:
    data, destination = declaration.data, declaration.pusher.destination
    places = {"data.dataset": data.dataset, "data.data_dir": data.data_dir, "pusher.destination": destination}
    for path, value in places.items():
        if value is not None and is_address(value) and (reason := reject_store(value)):
            yield Problem(path, reason, "gs://BUCKET/FOLDER, or a path", "copy it there, or name a path", value=value)
    if destination is None or is_address(destination):
        return
    if reason := reject_folder(destination) if destination else "it is empty":
        expected = "a folder that is there and can be written, or can be made; null is `serving` in the work folder"
        yield Problem("pusher.destination", reason, expected, "name another folder", value=destination)
