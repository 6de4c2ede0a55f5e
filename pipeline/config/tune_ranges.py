"""The ranges of `tune` by themselves: what is wrong with them, which values they hold, and how many."""

from __future__ import annotations

import decimal
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, get_args

from tfx_estimator.pipeline.config.explain import find_field
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.tune import HYPERBAND, RANGES, Range, TuneSection
from tfx_estimator.pipeline.config.yaml_text import inline

# The expectation for the name of a range.
EXPECTED = "a value of `trainer` that decides the model, as trainer.optimizer.learning_rate"

# A check of a declaration takes a hundredth of a second.
_FEW, _PARTS = 16, 4


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
    if log and each.step is not None and math.isinf(each.max / each.min):
        return wrong("it is too wide for its steps to be counted", "less, or no step")
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
    counts = [
        len(each.values) or (count_steps(each) + 1 if has_steps(name, each) else 0) for name, each in ranges.items()
    ]
    return math.prod(counts) if all(counts) else None


def is_whole(name: str, each: Range) -> bool:
    """Tells whether a range between two numbers is of whole ones: those of a declared whole number are."""
    field = find_field(tuple(name.split(".")))
    numbers = [number for number in (each.min, each.max, each.step) if number is not None]
    return not (field and _holds_fractions(field.kind)) and all(isinstance(number, int) for number in numbers)


def _holds_fractions(kind: Any) -> bool:
    return kind is float or any(map(_holds_fractions, get_args(kind)))


def has_steps(name: str, each: Range) -> bool:
    """Tells whether a range between two numbers holds some that can be counted."""
    return each.step is not None or (each.sampling == "linear" and is_whole(name, each))


def _multiplies(each: Range) -> bool:
    return each.sampling == "log" and each.step is not None


def count_steps(each: Range) -> int:
    """Returns how many steps lie between the ends; in decimals, as 0.3 is three times 0.1 and no less.

    Args:
        each: With both ends; without a step it is of whole numbers.
    """
    assert each.min is not None
    assert each.max is not None
    if _multiplies(each):
        # As keras-tuner counts them, but in logarithms, because the quotient may be too large for a float.
        return int((math.log(each.max) - math.log(each.min)) / math.log(each.step or 1) + 1e-8)
    low, high, step = (decimal.Decimal(str(number)) for number in (each.min, each.max, each.step or 1))
    return int((high - low) // step)


def value_after(each: Range, steps: int, whole: bool = False) -> Any:
    """Returns a value of a range as one would write it: 0.3, and no 0.30000000000000004."""
    assert each.min is not None
    assert each.max is not None
    if _multiplies(each):
        # 1e-5 * 10**8 is 1000.0000000000001.
        return min(each.min * (each.step or 1) ** steps, each.max)
    low, step = (decimal.Decimal(str(number)) for number in (each.min, each.step or 1))
    return (int if whole else float)(low + steps * step)


def stepped_values(each: Range) -> list[float]:
    """Returns the values of a range with a step."""
    return [value_after(each, steps) for steps in range(count_steps(each) + 1)]


def checked_values(name: str, each: Range) -> tuple[Any, ...]:
    """Returns what is tried of a range before a tuning: all of a list, or of a few values; else both ends and others.

    Args:
        each: Its values, about which `check_range` has nothing to say.
    """
    whole = is_whole(name, each)
    if each.values or (each.step is None and not whole):
        return each.extremes
    last = count_steps(each)
    few: Sequence[int] = range(last + 1)
    if last >= _FEW:
        # Neighbours are odd and even; those between are as far apart as the ends allow.
        few = sorted({0, 1, *(last * part // _PARTS for part in range(1, _PARTS)), last - 1, last})
    return tuple(value_after(each, steps, whole) for steps in few)
