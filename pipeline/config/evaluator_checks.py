"""Checks of the `evaluator` section: slices of nothing, and thresholds that could not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.evaluator import ALL, FEATURES, MEAN, Metric
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.slices import OVERALL, Slice, find_wrong, parse_held, parse_slice
from tfx_estimator.pipeline.config.yaml_text import inline

_PATH = "evaluator.metrics"
_SLICES = "evaluator.slices"
# Features that every example has; a preprocessing_fn may add others.
_IMAGE, _LABEL = "image", "label"


def check_evaluator(declaration: Declaration) -> Iterator[Problem]:
    """Checks the section."""
    section, transform = declaration.evaluator, declaration.transform
    # The features that the user's preprocessing_fn returns are not known here; the dry run and the Evaluator check
    # them.
    known = [_LABEL] if transform.target == type(transform)().target else []
    yield from _slices(_SLICES, section.slices, known)
    for index, metric in enumerate(section.metrics):
        path = f"{_PATH}.{index}"
        yield from _slices(f"{path}.slices", metric.slices, known, held=True)
        yield from _classes(path, metric)
        yield from _thresholds(path, metric)
        if metric.name == MEAN:
            yield from _paths_of_keys(path, metric, known)


def _slices(path: str, items: Sequence[Any], known: Sequence[str], held: bool = False) -> Iterator[Problem]:
    read: list[Slice] = []
    for index, item in enumerate(items):
        where, written = f"{path}.{index}", inline(item)
        what, expected = find_wrong(item, held)
        if what:
            yield Problem(where, what, expected, "correct or remove it", value=written)
            continue
        if held and item == OVERALL:
            (meant,) = parse_held([item])
        else:
            meant = parse_slice(item)
            yield from _features(where, written, meant, known)
        if meant in read:
            yield Problem(path, f"`{meant}` is named more than once", "each slice once", "keep one")
        read.append(meant)


def _features(where: str, written: str, meant: Slice, known: Sequence[str]) -> Iterator[Problem]:
    depends = ("transform.preprocessing_fn", "transform.module_file")
    for name in meant.names:
        choices = ", ".join(known or [_LABEL])
        if name == _IMAGE:
            what = f"`{name}`: every image would be a slice of its own; known here: {choices}"
            yield Problem(where, what, "a feature of few values", f"choose one of: {choices}", value=written)
        elif known and name not in known:
            near = nearest(name, known)
            todo = f"did you mean `{near}`?" if near else f"choose one of: {choices}"
            todo += "; or add it to what a transform.preprocessing_fn of your own returns"
            what = f"the examples have no feature `{name}` to slice by"
            yield Problem(where, what, f"one of {choices}", todo, value=written, depends=depends)


def _classes(path: str, metric: Metric) -> Iterator[Problem]:
    if metric.binarize == ():
        yield Problem(f"{path}.binarize", "it names no class", f"labels or names of classes, or {ALL}", "name some")
    if isinstance(metric.binarize, tuple):
        for label in metric.binarize:
            if (isinstance(label, int) and label < 0) or metric.binarize.count(label) > 1:
                what = f"{label} is {'no label' if metric.binarize.count(label) == 1 else 'named more than once'}"
                yield Problem(f"{path}.binarize", what, "each class once", "correct it", value=inline(label))
                break


def _paths_of_keys(path: str, metric: Metric, known: Sequence[str]) -> Iterator[Problem]:
    """Checks what a mean is of: TFMA looks for it among what it extracts, after the training."""
    for option in ("feature_key_path", "example_weights_key_path"):
        value = metric.options.get(option)
        if value is None or value in (["labels"], ("labels",)):
            continue
        where, written = f"{path}.options.{option}", inline(value)
        is_path = isinstance(value, (list, tuple)) and len(value) == 2 and value[0] == FEATURES
        expected = f"[{FEATURES}, NAME] of a feature that is one number, as [{FEATURES}, {_LABEL}]"
        if not is_path or not isinstance(value[1], str) or not value[1].strip():
            yield Problem(where, "it leads to no feature of the examples", expected, "correct it", value=written)
        elif value[1] == _IMAGE or (known and value[1] not in known):
            what = "an image is no number"
            if value[1] != _IMAGE:
                what = f"the examples have no feature `{value[1]}` to take the mean of"
            depends = ("transform.preprocessing_fn", "transform.module_file")
            yield Problem(where, what, expected, "correct it", value=written, depends=depends)


def _thresholds(path: str, metric: Metric) -> Iterator[Problem]:
    threshold, change = metric.threshold, metric.change_threshold
    if threshold is None and change is None:
        if metric.slices:
            what = "these are the slices that thresholds hold for, and there is none"
            todo = f"add threshold: {{lower: VALUE}}, or name them in {_SLICES}"
            yield Problem(f"{path}.slices", what, "a threshold beside it", todo)
        return
    if metric.name == MEAN:
        key = "threshold" if threshold is not None else "change_threshold"
        what = f"TFMA stores {MEAN} as of no model, and beside a baseline would look for the candidate's in vain"
        yield Problem(f"{path}.{key}", what, "a threshold of another metric", "remove it")
        return
    if threshold is not None:
        lower, upper = threshold.lower, threshold.upper
        if lower is None and upper is None:
            yield Problem(f"{path}.threshold", "it has no limit", "lower, upper, or both", "add lower: VALUE")
        elif lower is not None and upper is not None and lower > upper:
            what = "no value is at least lower and at most upper"
            yield Problem(f"{path}.threshold", what, "lower below upper", "correct them")
    if change is not None:
        if change.absolute is None and change.relative is None:
            todo = "add absolute: VALUE"
            yield Problem(f"{path}.change_threshold", "it has no limit", "absolute, relative, or both", todo)
        if metric.direction is None:
            what = f"its name does not tell whether {metric.name} is better high or low"
            todo = "add direction: higher_is_better, or lower_is_better"
            yield Problem(f"{path}.change_threshold", what, "a direction", todo)
