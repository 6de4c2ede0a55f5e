"""Checks of the `evaluator` section: slices of nothing, and thresholds that could not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.evaluator import MEAN, Metric, names_nothing, parse_held, parse_slice
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.yaml_text import inline

_SLICES = "evaluator.slices"
_LABEL = "label"


def check_evaluator(declaration: Declaration) -> Iterator[Problem]:
    """Checks the section."""
    section, transform = declaration.evaluator, declaration.transform
    # The features that the user's preprocessing_fn returns are not known here; the dry run and the Evaluator check
    # them.
    known = [_LABEL] if transform.target == type(transform)().target else []
    yield from _slices(_SLICES, section.slices, known)
    for index, metric in enumerate(section.metrics):
        path = f"evaluator.metrics.{index}"
        yield from _slices(f"{path}.slices", metric.slices, known, held=True)
        yield from _thresholds(path, metric)


def _slices(path: str, items: Sequence[Any], known: Sequence[str], held: bool = False) -> Iterator[Problem]:
    depends = ("transform.preprocessing_fn", "transform.module_file")
    for index, item in enumerate(items):
        where, written = f"{path}.{index}", inline(item)
        if names_nothing(item, held):
            expected = "a feature, a list of features, or {feature: value}"
            yield Problem(where, "it names no feature", expected, "correct or remove it", value=written)
            continue
        (meant,) = parse_held([item]) if held else [parse_slice(item)]
        for name in meant.names if known else ():
            if name not in known:
                near = nearest(name, known)
                todo = f"did you mean `{near}`?" if near else f"choose one of: {', '.join(known)}"
                todo += "; or add it to what a transform.preprocessing_fn of your own returns"
                what = f"the examples have no feature `{name}` to slice by"
                yield Problem(where, what, "", todo, value=written, depends=depends)


def _thresholds(path: str, metric: Metric) -> Iterator[Problem]:
    threshold, change = metric.threshold, metric.change_threshold
    if threshold is None and change is None and metric.slices:
        what = "these are the slices that thresholds hold for, and there is none"
        todo = f"add threshold: {{lower: VALUE}}, or name them in {_SLICES}"
        yield Problem(f"{path}.slices", what, "", todo)
    elif metric.name == MEAN and (threshold or change):
        key = "threshold" if threshold else "change_threshold"
        what = f"TFMA stores {MEAN} as of no model, and beside a baseline would look for the candidate's in vain"
        yield Problem(f"{path}.{key}", what, "a threshold of another metric", "remove it")
    elif change is not None and metric.direction is None:
        what = f"its name does not tell whether {metric.name} is better high or low"
        todo = "add direction: higher_is_better, or lower_is_better"
        yield Problem(f"{path}.change_threshold", what, "", todo)
