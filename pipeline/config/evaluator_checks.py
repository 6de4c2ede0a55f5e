"""Checks of the `evaluator` section: metrics that TFMA does not have, or that need other labels; slices of nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.evaluator import ALL, BUILT_IN, Metric
from tfx_estimator.pipeline.config.metric_table import (
    FEATURES,
    INSTEAD,
    MEAN,
    METRICS,
    REFUSED,
    WEIGHTED,
    Nature,
    find_wrong_options,
    name_in_results,
)
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.slices import OVERALL, Slice, find_wrong, parse_held, parse_slice
from tfx_estimator.pipeline.config.yaml_text import inline

_PATH = "evaluator.metrics"
_SLICES = "evaluator.slices"
# Features that every example has; a preprocessing_fn may add others.
_IMAGE, _LABEL = "image", "label"


def check_evaluator(declaration: Declaration) -> Iterator[Problem]:
    """Checks the section.

    Args:
        declaration: Typed values.

    Yields:
        The problems.
    """
    section, transform = declaration.evaluator, declaration.transform
    # The features that the user's preprocessing_fn returns are not known here; the dry run and the Evaluator check
    # them.
    known = [_LABEL] if transform.target == type(transform)().target else []
    yield from _slices(_SLICES, section.slices, known)
    for index, metric in enumerate(section.metrics):
        path = f"{_PATH}.{index}"
        yield from _slices(f"{path}.slices", metric.slices, known, held=True)
        yield from _metric(path, metric)
        if metric.name == MEAN:
            yield from _paths_of_keys(path, metric, known)
    yield from _alike(section.metrics)


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


def _metric(path: str, metric: Metric) -> Iterator[Problem]:
    nature = METRICS.get(metric.name)
    if nature is None or stacks.lacks_metric(metric.name):
        yield _unknown(path, metric.name)
        return
    yield from _options(path, metric, nature)
    asked = [("binarize", metric.binarize), ("top_k", metric.top_k), (metric.aggregate or "", metric.aggregate)]
    for form, value in asked:
        if value in (None, ()) or form in nature.forms:
            continue
        key = "aggregate" if form == metric.aggregate else form
        forms = [each if each in ("binarize", "top_k") else f"aggregate: {each}" for each in nature.forms]
        what = f"{metric.name} cannot be had by it"
        expected = f"any of {', '.join(forms)}" if forms else f"{metric.name} of all classes at once"
        written = inline(list(value) if isinstance(value, tuple) else value)
        yield Problem(f"{path}.{key}", what, expected, "remove it, or name another metric", value=written)
    if metric.binarize == ():
        yield Problem(f"{path}.binarize", "it names no class", f"labels or names of classes, or {ALL}", "name some")
    if isinstance(metric.binarize, tuple):
        for label in metric.binarize:
            if (isinstance(label, int) and label < 0) or metric.binarize.count(label) > 1:
                what = f"{label} is {'no label' if metric.binarize.count(label) == 1 else 'named more than once'}"
                yield Problem(f"{path}.binarize", what, "each class once", "correct it", value=inline(label))
                break
    yield from _thresholds(path, metric, nature)


def _unknown(path: str, name: str) -> Problem:
    if name in REFUSED:
        instead = INSTEAD.get(name, "")
        todo = f"did you mean `{instead}`?" if instead else "remove it"
        return Problem(f"{path}.name", REFUSED[name], "a metric of a classifier", todo, value=name)
    if name in METRICS:
        what, expected = f"TFX {stacks.current().tfx} has no such metric", "another, or another stack"
        return Problem(f"{path}.name", what, expected, "remove it, or see docs/install.md for the stacks", value=name)
    known = [*METRICS, *REFUSED]
    # `f1_score` is what the results call F1Score.
    plain = {each.lower(): each for each in known}
    near = plain.get(name.lower().replace("_", "")) or nearest(name, known)
    near = INSTEAD.get(near, near)
    what = "TFMA and Keras have no such metric"
    expected = (
        "the name of a class of tfma.metrics or tf.keras.metrics, as AUC, Precision, SparseTopKCategoricalAccuracy"
    )
    todo = f"did you mean `{near}`?" if near else "see https://www.tensorflow.org/tfx/model_analysis/metrics"
    return Problem(f"{path}.name", what, expected, todo, value=name)


def _options(path: str, metric: Metric, nature: Nature) -> Iterator[Problem]:
    for option, value in metric.options.items():
        if option not in nature.options:
            near = nearest(option, nature.options)
            what, expected = f"{metric.name} has no option `{option}`", f"one of {', '.join(nature.options)}"
            todo = f"did you mean `{near}`?" if near else "remove it"
            yield Problem(f"{path}.options.{option}", what, expected, todo, value=inline(value))
    for option in nature.required:
        if metric.options.get(option) is None:
            todo = f"add options: {{{option}: VALUE}}"
            yield Problem(f"{path}.options", f"{metric.name} needs the option `{option}`", "a value", todo)
    for option, value, expected in find_wrong_options(metric.name, metric.options):
        what = f"{metric.name} does not take this value"
        yield Problem(f"{path}.options.{option}", what, expected, "correct it", value=inline(value))
    for option, key in (("class_id", "binarize"), ("top_k", "top_k")):
        asked = metric.binarize is not None or metric.top_k or metric.aggregate
        if metric.options.get(option) is not None and asked:
            what = "classes are named twice"
            expected = f"{key} of the metric, or the option {option}"
            yield Problem(f"{path}.options.{option}", what, expected, f"remove it, and name it in {key}")


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


def _thresholds(path: str, metric: Metric, nature: Nature) -> Iterator[Problem]:
    threshold, change = metric.threshold, metric.change_threshold
    if threshold is None and change is None:
        if metric.slices:
            what = "these are the slices that thresholds hold for, and there is none"
            todo = f"add threshold: {{lower: VALUE}}, or name them in {_SLICES}"
            yield Problem(f"{path}.slices", what, "a threshold beside it", todo)
        return
    several = isinstance(metric.options.get("thresholds"), (list, tuple)) and len(metric.options["thresholds"]) > 1
    if not nature.is_number or (several and not metric.name.startswith("AUC")):
        why = "one for each of the thresholds" if several and nature.is_number else "a plot or a matrix"
        key = "threshold" if threshold is not None else "change_threshold"
        yield Problem(f"{path}.{key}", f"{metric.name} is no number, but {why}", "a metric of one number", "remove it")
        return
    for option, value in metric.options.items():
        # TFMA measures it under that class's key, and looks for the threshold under the whole's.
        if option in ("class_id", "top_k") and option in nature.options and value is not None:
            key = "binarize" if option == "class_id" else "top_k"
            todo = f"write {key}: [{value}] beside options in its place" if key in nature.forms else "remove it"
            what = "a threshold does not hold for what an option chooses"
            yield Problem(f"{path}.options.{option}", what, f"{key} beside a threshold", todo, value=inline(value))
            return
    if metric.name == MEAN:
        key = "threshold" if threshold is not None else "change_threshold"
        what = f"TFMA stores {MEAN} as of no model, and beside a baseline would look for the candidate's in vain"
        yield Problem(f"{path}.{key}", what, "a threshold of another metric", "remove it")
        return
    if metric.aggregate == WEIGHTED:
        what = "TFMA stores a weighted mean as a plain one, and would look for it in vain"
        yield Problem(f"{path}.aggregate", what, "macro or micro, beside a threshold", "set aggregate: macro")
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
        if change.direction is None and not nature.direction:
            what = f"whether {metric.name} is better high or low depends on what it is for"
            todo = "add direction: higher_is_better, or lower_is_better"
            yield Problem(f"{path}.change_threshold", what, "a direction", todo)


def _alike(metrics: Sequence[Metric]) -> Iterator[Problem]:
    """Metrics that would have one name in the results."""
    # The built-in accuracy counts as well: TFMA would replace it by a declared metric of its name, and bless by that.
    built_in = ((name_in_results(name, {}), "") for name in BUILT_IN)
    seen: dict[tuple[str, str], str] = dict.fromkeys(built_in, "what is measured anyway")
    for index, metric in enumerate(metrics):
        if metric.is_built_in:
            seen_as = [(f"{metric.name} again", "")]
        else:
            seen_as = [(name_in_results(metric.name, metric.options), part) for part in _parts(metric)]
        for key in seen_as:
            if key in seen:
                what = f"the results would call it as {seen[key]}"
                todo = f"add options: {{name: another_name}} to one of them: as {{name: {metric.name.lower()}_2}}"
                yield Problem(f"{_PATH}.{index}", what, "metrics of different names", todo, value=metric.name)
                break
        seen.update(dict.fromkeys(seen_as, f"{_PATH}.{index}"))


def _parts(metric: Metric) -> Iterator[str]:
    """What the metric is of: the whole, or classes, and so on."""
    if metric.binarize is not None:
        yield from ["class " + str(each) for each in metric.binarize] if metric.binarize != ALL else ["classes"]
    yield from (f"top {k}" for k in metric.top_k)
    if metric.aggregate:
        # TFMA names an aggregate as the whole.
        yield ""
    if metric.options.get("class_id") is not None:
        yield f"class {metric.options['class_id']}"
    elif metric.options.get("top_k") is not None:
        yield f"top {metric.options['top_k']}"
    elif metric.binarize is None and not metric.top_k and not metric.aggregate:
        yield ""
