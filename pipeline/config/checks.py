"""Checks across the values of a declaration, each of which is valid alone."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.config.beam_checks import check_beam
from tfx_estimator.pipeline.config.class_weights import check_class_weights
from tfx_estimator.pipeline.config.code_checks import check_module_file, check_target
from tfx_estimator.pipeline.config.data import EXAMPLES, find_overlap, reject_split, split_names, suggest_splits
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.evaluator import Metric, parse_held, parse_slice
from tfx_estimator.pipeline.config.gpu_checks import check_gpus
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.config.package_names import metric_names, nearest_metric, tfds_names
from tfx_estimator.pipeline.config.paths import (
    A_FOLDER,
    is_address,
    is_path,
    is_table,
    is_tfds_name,
    reject_folder,
    reject_store,
)
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.rules.deploy import DEPLOY
from tfx_estimator.pipeline.config.rules.distribution import DISTRIBUTION
from tfx_estimator.pipeline.config.rules.optimizer import OPTIMIZER
from tfx_estimator.pipeline.config.rules.rule import Case, broken
from tfx_estimator.pipeline.config.rules.run_fn import RUN_FN
from tfx_estimator.pipeline.config.rules.step import STEP
from tfx_estimator.pipeline.config.rules.training import TRAINING
from tfx_estimator.pipeline.config.table import check_table, columns_of
from tfx_estimator.pipeline.config.tracking import check_tracking
from tfx_estimator.pipeline.config.travel_checks import check_credentials, check_travel
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.platforms.rules import all_rules
from tfx_estimator.pipeline.user_data.names import TRAIN
from tfx_estimator.pipeline.user_data.reading import Reading

RULES = (*TRAINING, *OPTIMIZER, *STEP, *DISTRIBUTION, *RUN_FN)
_SLICES, _LABEL, _PREPROCESSING = "evaluator.slices", "label", "transform.preprocessing_fn"


def check(case: Case) -> list[Problem]:
    """Runs all checks."""
    return [
        *(check_table(case) if case.data.is_table else (*_data(case.declaration, case.reading), *_tfds_name(case))),
        *_code(case),
        *check_class_weights(case.declaration, case.reading.classes if case.reading else ()),
        *broken((*RULES, *DEPLOY, *all_rules()), case),
        *_evaluator(case),
        # With a target, these paths are on other machines.
        *(() if case.target else _places(case.declaration)),
        *check_beam(case),
        *check_gpus(case),
        *check_credentials(case),
        *check_tracking(case.tracking),
        *check_travel(case),
    ]


def _data(declaration: Declaration, reading: Optional[Reading]) -> Iterator[Problem]:
    data = declaration.data
    if not data.dataset.strip():
        todo = "name one: dataset: mnist; or a table of features: csv: FILE"
        yield Problem("data.dataset", "this key is missing", "a data set's name or folder", todo)
    elif is_path(data.dataset) and not is_address(data.dataset):
        yield from _check_folder_or_table(data.dataset)
    if reading and (error := reading.refusal):
        yield Problem("data.dataset", error.what, error.expected, error.todo, value=data.dataset)
    known = [TRAIN] if data.dataset == "digits" else list(reading.files) if reading and not reading.refusal else []
    declared = data.splits.declared()
    for key, expression in declared.items():
        path = f"data.splits.{key}"
        if reason := reject_split(expression):
            todo = "see https://www.tensorflow.org/datasets/splits"
            yield Problem(path, reason, EXAMPLES, todo, value=expression)
        elif known and (wrong := sorted(set(split_names(expression)) - {*known, "all"})):
            what = f"the data set {os.path.basename(data.dataset)} has no split `{wrong[0]}`"
            for why, names in reading.left_out.items() if reading else ():
                if wrong[0] in (name.partition(" (")[0] for name in names):
                    what += f": the folder of this name is left out ({why})"
            expected = f"{', '.join(known)}, or parts of {'them' if known[1:] else 'it'}"
            todo = f"set {suggest_splits(known, 'test' in declared)}"
            yield Problem(path, what, expected, todo, value=expression, depends=("data.dataset",))
    yield from _overlaps({key: each for key, each in declared.items() if not reject_split(each)}, known)


def _tfds_name(case: Case) -> Iterator[Problem]:
    """Checks that TFDS knows the data set, unless it is prepared, or other machines may have it."""
    dataset, data_dir = case.data.dataset, case.data.data_dir
    name = re.split("[/:]", dataset)[0]
    if case.target or is_address(data_dir or "") or not is_tfds_name(dataset):
        return
    known = tfds_names()
    places = (data_dir or os.environ.get("TFDS_DATA_DIR") or "", "~/tensorflow_datasets", ".")
    held = (os.path.isdir(os.path.join(os.path.expanduser(each), name)) for each in places)
    if known and name not in (*known, "digits") and not any(held):
        near = nearest(name, known)
        todo = f"did you mean `{near}`?" if near else "see https://www.tensorflow.org/datasets/catalog/overview"
        expected = "a TFDS name, digits, package.module:Builder, ./FOLDER, or a CSV or Parquet file"
        what = f"TFDS has no data set {name}, and there is no folder of this name"
        yield Problem("data.dataset", what, expected, todo, value=dataset)


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
    what = "this is a file of another kind" if os.path.isfile(dataset) else "there is no such file or folder"
    yield Problem("data.dataset", what, "a folder, a CSV or Parquet file, or a data set's name", todo, value=dataset)


def _code(case: Case) -> Iterator[Problem]:
    """Checks that the named functions and files exist, without importing them."""
    dataset, trainer, transform = case.data.dataset, case.trainer, case.transform
    if ":" in dataset and not is_path(dataset) and not is_tfds_name(dataset):
        yield from check_target("data.dataset", dataset, case.search_paths, "class")
    functions = {"trainer.model": trainer.model, _PREPROCESSING: transform.preprocessing_fn}
    for path, function in functions.items():
        if function is not None:
            yield from check_target(path, function, case.search_paths, of_table=case.data.is_table)
    if trainer.module_file is not None:
        yield from check_module_file("trainer.module_file", trainer.module_file, ("trainer_fn", "run_fn"))
    if transform.module_file is not None:
        yield from check_module_file("transform.module_file", transform.module_file, ("preprocessing_fn",))
    is_by_schema = case.data.is_table and transform.of_table().target == expand(_PREPROCESSING, "by_schema")
    if transform.top_k and not is_by_schema:
        what, todo = "this preprocessing_fn numbers no words by it", "remove this line"
        yield Problem("transform.top_k", what, "by_schema, of a table", todo, value=str(transform.top_k))


def _places(declaration: Declaration) -> Iterator[Problem]:
    data, destination = declaration.data, declaration.pusher.destination
    for name, section in (("transform", declaration.transform), ("trainer", declaration.trainer)):
        for file in [each for each in section.files if not (is_address(each) or os.path.exists(each))]:
            what, todo = "there is no such file or folder", "check the path: it is relative to the declaration's folder"
            yield Problem(f"{name}.files", what, "files that your code reads", todo, value=file)
    places = {"data.dataset": data.dataset, "data.data_dir": data.data_dir, "pusher.destination": destination}
    places |= {f"data.{key}": getattr(data, key) for key in (*data.table_keys, "schema")}
    for path, value in places.items():
        if value is not None and is_address(value) and (reason := reject_store(value)):
            yield Problem(path, reason, f"{A_FOLDER}, or a path", "copy it there, or name a path", value=value)
    if destination is None or is_address(destination):
        return
    if reason := reject_folder(destination) if destination else "it is empty":
        expected = "a writable folder, or one that can be made; null is `serving` in the work folder"
        yield Problem("pusher.destination", reason, expected, "name another folder", value=destination)


def _evaluator(case: Case) -> Iterator[Problem]:
    section, transform = case.evaluator, case.transform
    # The features that the user's preprocessing_fn returns are unknown here; the dry run and the Evaluator check them.
    is_built_in = transform.target == type(transform)().target
    known = (columns_of(case) if case.data.is_table else [_LABEL]) if is_built_in else []
    # The default is of images.
    declared = () if case.data.is_table and section.slices == type(section)().slices else section.slices
    yield from _slices(_SLICES, declared, known)
    for index, metric in enumerate(section.metrics):
        path = f"evaluator.metrics.{index}"
        if (classes := metric_names()) and metric.name not in classes:
            near = nearest_metric(metric.name)
            todo = f"did you mean `{near}`?" if near else "name a class of tfma.metrics or tf.keras.metrics"
            yield Problem(path, "neither TFMA nor Keras has a metric of this name", "", todo, value=metric.name)
        yield from _slices(f"{path}.slices", metric.slices, known, held=True)
        yield from _thresholds(path, metric)


def _slices(path: str, items: Sequence[Any], known: Sequence[str], held: bool = False) -> Iterator[Problem]:
    depends = (_PREPROCESSING, "transform.module_file")
    for index, item in enumerate(items):
        (meant,) = parse_held([item]) if held else [parse_slice(item)]
        for name in meant.names if known else ():
            if name not in known:
                near = nearest(name, known)
                todo = f"did you mean `{near}`?" if near else f"choose one of: {', '.join(known)}"
                todo += "; or return it from your own transform.preprocessing_fn"
                what = f"the examples have no feature `{name}` to slice by"
                yield Problem(f"{path}.{index}", what, "", todo, value=inline(item), depends=depends)


def _thresholds(path: str, metric: Metric) -> Iterator[Problem]:
    threshold, change = metric.threshold, metric.change_threshold
    if threshold is None and change is None and metric.slices:
        what = "these slices are for thresholds, and there is none"
        todo = f"add threshold: {{lower: VALUE}}, or name them in {_SLICES}"
        yield Problem(f"{path}.slices", what, "", todo)
    elif change is not None and metric.direction is None:
        what = f"it is not clear from its name whether {metric.name} is better high or low"
        todo = "add direction: higher_is_better, or lower_is_better"
        yield Problem(f"{path}.change_threshold", what, "", todo)
