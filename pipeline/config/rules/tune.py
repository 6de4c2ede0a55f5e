"""Rules of `tune`: its ranges and their combinations, the objective, and the length of trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Optional, get_args

from tfx_estimator.pipeline.config.explain import find_field
from tfx_estimator.pipeline.config.rules.rule import Case, Rule, given
from tfx_estimator.pipeline.config.rules.training import metric_rule
from tfx_estimator.pipeline.config.tune import HYPERBAND, RANGES, Range
from tfx_estimator.pipeline.config.yaml_text import inline

# Expected name of a range.
EXPECTED = "a value of `trainer` that affects the model, such as trainer.optimizer.learning_rate"
_LENGTHS = ("trainer.train_steps", "trainer.train_epochs")
_BAND, _STEPS = "tune.hyperband", "tune.train_steps"


def is_whole(name: str, each: Range) -> bool:
    """Returns whether a range takes whole numbers only: its numbers are whole, and its key takes no fractions."""
    field = find_field(tuple(name.split(".")))
    numbers = [number for number in (each.min, each.max, each.step) if number is not None]
    return not (field and _holds_fractions(field.kind)) and all(isinstance(number, int) for number in numbers)


def _holds_fractions(kind: Any) -> bool:
    return kind is float or any(map(_holds_fractions, get_args(kind)))


def combinations(ranges: Mapping[str, Range]) -> Optional[int]:
    """Returns the number of different trials; None if a range is continuous."""
    counts = [_count(name, each) for name, each in ranges.items()]
    return math.prod(counts) if all(counts) else None


def _count(name: str, each: Range) -> int:
    """Returns the number of values in a range; 0 if it is continuous."""
    if each.values or each.step is not None:
        return len(each.values) or each.steps + 1
    low, high = each.extremes
    return int(high - low) + 1 if each.sampling == "linear" and is_whole(name, each) else 0


def wrong_range(name: str, each: Range) -> Optional[dict[str, str]]:
    """Returns the problem of a range alone, or None."""

    def wrong(why: str, allowed: str = "[value, value], or {min, max}") -> dict[str, str]:
        return {"name": name, "why": why, "allowed": allowed, "value": inline(each.dict())}

    ends = [f"{key} alone" for key in ("min", "max") if getattr(each, key) is not None]
    if each.values:
        return wrong("it has values, and min, max or step as well") if ends or each.step is not None else None
    if each.min is None or each.max is None:
        return wrong(f"it has {ends[0] if ends else 'neither a list of values nor min and max'}")
    if each.min >= each.max:
        return wrong(f"max is not more than min, {each.min:g}", f"more than {each.min:g}")
    log = each.sampling == "log"
    if log and each.min <= 0:
        return wrong("a logarithm has no such values", "min above 0, or sampling: linear")
    if each.step is not None and (each.step <= (1 if log else 0) or each.steps < 1):
        least = "a step above 1, by which values are multiplied" if log else "a step above 0"
        widest = each.max / each.min if log else each.max - each.min
        return wrong("no second value lies within the range", f"{least}, and at most {widest:g}")
    return None


# Rules that need only this section.
TUNE_SECTION = (
    Rule(
        RANGES,
        lambda case: not case.tune.ranges and {"value": ""},
        "there is nothing to vary",
        "add a range",
        f"{{{{name: [value, value]}}}} or {{{{name: {{{{min, max}}}}}}}}, each name {EXPECTED}",
    ),
    Rule(
        f"{RANGES}.{{name}}",
        lambda case: [wrong_range(*each) for each in case.tune.ranges.items()],
        "{why}",
        "choose other values",
        "{allowed}",
    ),
    metric_rule("tune.objective", lambda case: case.tune.objective),
    Rule(
        _STEPS,
        lambda case: case.tune.strategy == HYPERBAND and case.tune.train_steps is not None,
        "trials of hyperband have different numbers of steps",
        "call it hyperband.max_steps",
        f"{_BAND}.max_steps",
        ("tune.strategy",),
    ),
)


def _length_twice(case: Case) -> Any:
    own = _BAND if case.tune.strategy == HYPERBAND else _STEPS if case.tune.train_steps else ""
    varied = [name for name in _LENGTHS if name in case.tune.ranges]
    return own and varied and {"name": varied[0], "own": own, "value": ""}


def longest_trial(case: Case) -> int:
    """Returns the steps of hyperband's longest trials; 0 if unknown, or for another strategy."""
    steps = case.tune.hyperband.max_steps or case.trainer.train_steps or 0
    return steps if case.tune.strategy == HYPERBAND else 0


def _few_values(case: Case) -> Any:
    ranges, steps = case.tune.ranges, longest_trial(case)
    are_right = ranges and not any(wrong_range(*each) for each in ranges.items())
    count = combinations(ranges) if steps and are_right else None
    need = case.tune.hyperband.initial_trials(steps) if count is not None else 0
    return count is not None and count < need and {"need": need, "count": count}


def _no_rounds(case: Case) -> Any:
    band, steps = case.tune.hyperband, longest_trial(case)
    return steps and band.rounds(steps) < 2 and {"steps": f"{steps:,}", "most": f"{steps // band.factor:,}"}


TUNE = given(
    lambda case: case.tune is not None,
    *TUNE_SECTION,
    Rule(
        "tune",
        lambda case: case.is_run_fn,
        "a run_fn evaluates by itself, and reports no metric to rank trials by",
        "remove `tune`; TFX's own Tuner, with a tuner_fn, can tune inside of a run_fn",
        "a trainer_fn, or trainer.model",
        ("trainer.module_file",),
    ),
    Rule(
        f"{RANGES}.{{name}}", _length_twice, "{own} fixes the steps", "remove one of them", "one of the two", ("{own}",)
    ),
    Rule(
        "tune.strategy",
        _few_values,
        "hyperband starts {need} different trials, and the ranges have {count} combinations: none would continue",
        "set tune.strategy to random",
        "random, or ranges with more values",
        (RANGES, _BAND),
    ),
    Rule(
        f"{_BAND}.min_steps",
        _no_rounds,
        "no trial would continue: the longest have {steps} steps, fewer than the shortest times the factor",
        "lower it, or train longer",
        "at most {most}",
        (f"{_BAND}.max_steps", f"{_BAND}.factor", "trainer.train_steps"),
    ),
)
