"""The ranges of `tune` by themselves: what is wrong with them, and which values they hold, and how many."""

from __future__ import annotations

import decimal
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Optional, get_args

from tfx_estimator.pipeline.config.explain import find_field
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.tune import HYPERBAND, RANGES, Range, TuneSection
from tfx_estimator.pipeline.config.yaml_text import inline

# The expectation for the name of a range.
EXPECTED = "a value of `trainer` that decides the model, as trainer.optimizer.learning_rate"


def check_section(tune: TuneSection) -> Iterator[Problem]:
    """Checks what needs nothing but the section."""
    if not tune.ranges:
        expected = f"{{name: [value, value]}} or {{name: {{min, max}}}}, each name {EXPECTED}"
        yield Problem(RANGES, "there is nothing to vary", expected, "add a range")
    yield from filter(None, (check_range(name, each) for name, each in tune.ranges.items()))
    if tune.objective.better is None:
        metric = tune.objective.metric
        yield Problem(
            "tune.objective.metric",
            f"its name does not tell whether more or less of `{metric}` is better",
            "tune.objective.mode: max, or min",
            "set tune.objective.mode",
            value=metric,
            depends=("tune.objective.mode",),
        )
    if tune.strategy == HYPERBAND and tune.train_steps is not None:
        yield Problem(
            "tune.train_steps",
            "trials of hyperband have different numbers of steps",
            "tune.hyperband.max_steps",
            "call it hyperband.max_steps",
            value=str(tune.train_steps),
            depends=("tune.strategy",),
        )


def check_range(name: str, each: Range) -> Optional[Problem]:
    """Checks what needs nothing but the range."""

    def wrong(what: str, expected: str = "[value, value], or {min, max}") -> Problem:
        return Problem(f"{RANGES}.{name}", what, expected, "choose other values", value=inline(each.dict()))

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
    if each.step is not None and (each.step <= (1 if log else 0) or count_steps(each) < 1):
        least = "a step above 1, by which values are multiplied" if log else "a step above 0"
        widest = each.max / each.min if log else each.max - each.min
        return wrong("no second value lies within the range", f"{least}, and at most {widest:g}")
    return None


def by_text(each: Range) -> dict[str, Any]:
    """Returns the values of a list that keras-tuner has no choice of, each by its JSON; none where it has.

    It knows numbers, texts, or true and false, all of one kind.
    """
    kinds = {"number" if type(value) in (int, float) else type(value).__name__ for value in each.values}
    if len(kinds) <= 1 and kinds <= {"number", "str", "bool"}:
        return {}
    return {text: json.loads(text) for text in (json.dumps(value, sort_keys=True) for value in each.values)}


def combinations(ranges: Mapping[str, Range]) -> Optional[int]:
    """Returns how many different trials there are; None where a range has no steps."""
    counts = [_count(name, each) for name, each in ranges.items()]
    return math.prod(counts) if all(counts) else None


def _count(name: str, each: Range) -> int:
    """How many values a range holds; 0 where they cannot be counted."""
    if each.values or each.step is not None:
        return len(each.values) or count_steps(each) + 1
    assert each.min is not None
    assert each.max is not None
    return int(each.max - each.min) + 1 if each.sampling == "linear" and is_whole(name, each) else 0


def is_whole(name: str, each: Range) -> bool:
    """Tells whether a range between two numbers is of whole ones: those of a declared whole number are."""
    field = find_field(tuple(name.split(".")))
    numbers = [number for number in (each.min, each.max, each.step) if number is not None]
    return not (field and _holds_fractions(field.kind)) and all(isinstance(number, int) for number in numbers)


def _holds_fractions(kind: Any) -> bool:
    return kind is float or any(map(_holds_fractions, get_args(kind)))


def count_steps(each: Range) -> int:
    """Returns how many steps lie between the ends; in decimals, as 0.3 is three times 0.1 and no less."""
    assert each.min is not None
    assert each.max is not None
    assert each.step is not None
    if each.sampling == "log":
        # As keras-tuner counts them, but in logarithms, because the quotient may be too large for a float.
        return int((math.log(each.max) - math.log(each.min)) / math.log(each.step) + 1e-8)
    low, high, step = (decimal.Decimal(str(number)) for number in (each.min, each.max, each.step))
    return int((high - low) // step)


def stepped_values(each: Range) -> list[float]:
    """Returns the values of a range with a step as one would write them: 0.3, and no 0.30000000000000004."""
    low, step = decimal.Decimal(str(each.min)), decimal.Decimal(str(each.step))
    return [float(low + steps * step) for steps in range(count_steps(each) + 1)]
