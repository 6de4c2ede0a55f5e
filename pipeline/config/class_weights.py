"""`trainer.class_weights`: by label or class name, checked against the classes as soon as they are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional, Union

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.user_data.names import nfc

Weights = Union[Sequence[float], Mapping[str, float]]

# Stands for weights that give every class the same total weight.
BALANCED = "balanced"

_PATH = "trainer.class_weights"


def weights_by_label(weights: Weights, label_names: Sequence[str]) -> tuple[float, ...]:
    """Returns the weight of each label, in the order of the names; 1 for a class that is not named."""
    weights = _nfc_keys(weights)
    if problem := _find_wrong(weights, label_names):
        raise DeclarationError(f"{problem.path}: {problem.what}", expected=problem.expected, todo=problem.todo)
    if isinstance(weights, Mapping):
        return tuple(float(weights.get(name, 1.0)) for name in label_names)
    return tuple(map(float, weights))


def check_class_weights(declaration: Declaration, classes: Sequence[str]) -> Iterator[Problem]:
    """Checks the weights against the classes that were read."""
    weights = declaration.trainer.class_weights
    if weights is None or isinstance(weights, str):
        return
    if problem := _find_wrong(_nfc_keys(weights), classes):
        yield problem


def _find_wrong(weights: Weights, classes: Sequence[str]) -> Optional[Problem]:
    """Returns the first problem; `classes` is empty if unknown."""
    depends = ("data.dataset",)
    if classes and isinstance(weights, Mapping):
        if unknown := [name for name in weights if name not in classes]:
            near = nearest(unknown[0], classes)
            todo = f"did you mean `{near}`?" if near else "remove it, or name another class"
            what = f"the data has no class `{unknown[0]}`"
            return Problem(_PATH, what, "some of " + ", ".join(classes), todo, depends=depends)
    elif classes and len(weights) != len(classes):
        what = f"{len(weights)} weights for {len(classes)} classes"
        expected = f"one for each label, in this order: {', '.join(classes)}"
        todo = "add or remove some; or name classes: {" + f"{inline(classes[0])}: 2.0" + "}"
        return Problem(_PATH, what, expected, todo, depends=depends)
    return None


def _nfc_keys(weights: Weights) -> Weights:
    return {nfc(name): weight for name, weight in weights.items()} if isinstance(weights, Mapping) else weights
