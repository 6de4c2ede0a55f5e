"""`trainer.class_weights`: by label or by a class's name, checked against the classes as soon as they are known."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Union

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.classes import in_form, in_order
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.image_folder import folders, split_folders
from tfx_estimator.pipeline.config.paths import is_address, is_path
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.yaml_text import inline

Weights = Union[Sequence[float], Mapping[str, float]]

# Stands for a weight for each label, by which each class counts as much as another.
BALANCED = "balanced"

_PATH = "trainer.class_weights"
_LARGEST = 1_000_000
_DIGITS = tuple(map(str, range(10)))
# Data sets of known classes; where TFDS prepared one without the file of its names, these are numbers.
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_KNOWN = {"digits": (_DIGITS,), "mnist": (_DIGITS,), "cifar10": (_CIFAR10, _DIGITS)}


def weights_by_label(weights: Weights, label_names: Sequence[str]) -> tuple[float, ...]:
    """Returns the weight of each label; a class that is not named has 1.

    Args:
        label_names: The classes, in the order of their labels.

    Raises:
        DeclarationError: They do not fit the classes.
    """
    weights = _in_form(weights)
    for problem in _against(weights, label_names):
        raise DeclarationError(f"{problem.path}: {problem.what}", expected=problem.expected, todo=problem.todo)
    if isinstance(weights, Mapping):
        return tuple(float(weights.get(name, 1.0)) for name in label_names)
    return tuple(map(float, weights))


def check_class_weights(declaration: Declaration) -> Iterator[Problem]:
    """Checks the values, and against the classes where they can be told without the data."""
    weights = declaration.trainer.class_weights
    if weights is None or isinstance(weights, str):
        return
    numbers = list(weights.values() if isinstance(weights, Mapping) else weights)
    wrong = [number for number in numbers if not 0 <= number <= _LARGEST]
    if wrong:
        expected = f"numbers from 0 to {_LARGEST:,}"
        yield Problem(_PATH, f"{inline(wrong[0])} is no weight", expected, "correct it", value=inline(weights))
    elif numbers and not any(numbers) and not isinstance(weights, Mapping):
        yield _none_counts(weights)
    elif known := _classes(declaration.data.dataset, weights):
        yield from _against(_in_form(weights), known)


def _against(weights: Weights, classes: Sequence[str]) -> Iterator[Problem]:
    depends = ("data.dataset",)
    if not isinstance(weights, Mapping):
        if len(weights) != len(classes):
            what = f"{len(weights)} weights for {len(classes)} classes"
            expected = f"one for each label, in this order: {', '.join(classes)}"
            todo = "add or remove some; or name classes: {" + f"{inline(classes[0])}: 2.0" + "}"
            yield Problem(_PATH, what, expected, todo, depends=depends)
        return
    for name in weights:
        if name not in classes:
            near = nearest(name, classes)
            todo = f"did you mean `{near}`?" if near else "remove it, or name another class"
            what = f"the data has no class `{name}`"
            yield Problem(_PATH, what, "some of " + ", ".join(classes), todo, depends=depends)
    # A class that is not named has 1.
    if not any(weights.get(name, 1.0) for name in classes):
        yield _none_counts(weights, depends)


def _none_counts(weights: Weights, depends: tuple[str, ...] = ()) -> Problem:
    todo = "raise one"
    return Problem(_PATH, "no example would count", "a weight above 0", todo, value=inline(weights), depends=depends)


def _in_form(weights: Weights) -> Weights:
    return {in_form(name): weight for name, weight in weights.items()} if isinstance(weights, Mapping) else weights


def _classes(dataset: str, weights: Weights) -> Sequence[str]:
    """The classes, where the name of the data set, or of its folders, tells them: those that the weights name."""
    if dataset in _KNOWN:
        return max(_KNOWN[dataset], key=lambda names: sum(name in names for name in weights))
    if not is_path(dataset) or is_address(dataset) or not os.path.isdir(dataset):
        return []
    try:
        return in_order(each.name for place in split_folders(Path(dataset)).values() for each in folders(place))
    except OSError:
        return []  # told when it is opened
