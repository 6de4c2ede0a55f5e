"""The ranges of `tune` by themselves: what is wrong with them, and how many values they hold."""

from __future__ import annotations

import decimal
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union, get_args, get_origin

from tfx_estimator.pipeline.config.explain import find_field
from tfx_estimator.pipeline.config.kinds import is_class
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.put_values import SECTION
from tfx_estimator.pipeline.config.section import MAX_STEPS
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
    for name, each in tune.ranges.items():
        yield from check_range(name, each)
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
    band = tune.hyperband
    if tune.strategy != HYPERBAND and band != type(band)():
        what = f"it is of the strategy {HYPERBAND}, and tune.strategy is {tune.strategy}"
        yield Problem(
            "tune.hyperband", what, "no such section", f"remove it, or set tune.strategy to {HYPERBAND}",
            depends=("tune.strategy",),
        )  # fmt: skip
    if tune.strategy == HYPERBAND and tune.train_steps is not None:
        yield Problem(
            "tune.train_steps",
            "trials of hyperband have different numbers of steps",
            "tune.hyperband.max_steps",
            "call it hyperband.max_steps",
            value=str(tune.train_steps),
            depends=("tune.strategy",),
        )


def check_range(name: str, each: Range) -> Iterator[Problem]:
    """Checks what needs nothing but the range."""
    path = f"{RANGES}.{name}"
    ends = [key for key in ("min", "max") if getattr(each, key) is not None]
    form = "[value, value], or {min, max}"
    if each.values:
        if others := [*ends, *(["step"] if each.step is not None else [])]:
            yield Problem(path, f"it has values, and {' and '.join(others)} as well", form, "keep one of the two")
        yield from _list(path, each.values)
        return
    if len(ends) < 2:
        missing = "neither a list of values nor min and max" if not ends else f"{ends[0]} alone"
        yield Problem(path, f"it has {missing}", form, "write a list, or both ends")
        return
    assert each.min is not None
    assert each.max is not None
    if each.min >= each.max:
        yield Problem(f"{path}.max", f"it is not more than min, {each.min:g}", f"more than {each.min:g}",
                      "choose another value", value=inline(each.max))  # fmt: skip
        return
    log = each.sampling == "log"
    if log and each.min <= 0:
        yield Problem(f"{path}.min", "a logarithm has no such values", "more than 0",
                      "raise it, or set sampling to linear", value=inline(each.min))  # fmt: skip
        return
    if each.step is None:
        return
    if is_class(_kind(name), int) and not is_whole(name, each):
        yield Problem(f"{path}.step", "the value is a whole number, and what lies between is not", "a whole number",
                      "choose another value", value=inline(each.step))  # fmt: skip
        return
    if log and not math.isfinite(each.max / each.min):
        yield Problem(f"{path}.max", "it is too many times min for steps",
                      f"at most {sys.float_info.max:.1g} times {each.min:g}",
                      "choose another value, or leave step out", value=inline(each.max))  # fmt: skip
        return
    too_small = each.step <= (1 if log else 0)
    if not too_small and not is_whole(name, each) and _holds_more(each, MAX_STEPS):
        yield Problem(f"{path}.step", "the range has too many steps", f"at most {MAX_STEPS:,} steps",
                      "raise it, or leave it out for any value between the ends", value=inline(each.step))  # fmt: skip
        return
    if too_small or count_steps(each) < 1:
        widest = each.max / each.min if log else each.max - each.min
        least = "more than 1, by which values are multiplied" if log else "more than 0"
        yield Problem(f"{path}.step", "no second value lies within the range", f"{least}, and at most {widest:g}",
                      "choose another value", value=inline(each.step))  # fmt: skip


def _list(path: str, values: Sequence[Any]) -> Iterator[Problem]:
    # 1 and 1.0 are one, and true is another.
    told_apart = {value if type(value) in (int, float) else _as_text(value) for value in values}
    if len(told_apart) < len(values):
        yield Problem(path, "it has a value twice", "each value once", "remove one", value=inline(values))


def by_text(each: Range) -> dict[str, Any]:
    """Returns the values of a list that keras-tuner has no choice of, each by a text that stands for it.

    It knows numbers, texts, or true and false, all of one kind.

    Returns:
        The values as JSON gives them back; none where keras-tuner has such values itself.
    """
    kinds = {"number" if type(value) in (int, float) else type(value).__name__ for value in each.values}
    if len(kinds) <= 1 and kinds <= {"number", "str", "bool"}:
        return {}
    return {text: json.loads(text) for text in map(_as_text, each.values)}


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def combinations(ranges: Mapping[str, Range]) -> Optional[int]:
    """Returns how many different trials there are; None where a range has no steps."""
    counts = [_count(each, is_whole(name, each)) for name, each in ranges.items()]
    return math.prod(count for count in counts if count) if all(counts) else None


def is_whole(name: str, each: Range) -> bool:
    """Tells whether a range between two numbers is of whole ones: those of a declared whole number are."""
    if is_class(_kind(name), float):
        return False
    numbers = [number for number in (each.min, each.max, each.step) if number is not None]
    return all(isinstance(number, int) for number in numbers)


def _kind(name: str) -> Any:
    """The type of what is varied: of an item, that of each; None where it is not known."""
    field = find_field(tuple(name.split("."))) if name.startswith(f"{SECTION}.") else None
    if field is None or name.startswith(f"{SECTION}.params."):
        return None
    return field.outer_type_ if field.name == name.rpartition(".")[2] else item_type(field.outer_type_, name)


def item_type(annotation: Any, name: str) -> Any:
    """Returns the type of what a list or mapping holds, at the path of one of its items; None of anything else.

    Args:
        annotation: Of the list or mapping, or a union with it.
        name: The item's dotted path, whose last part is its number or key.
    """
    alternatives = get_args(annotation) if get_origin(annotation) is Union else (annotation,)
    found = {get_origin(each): get_args(each) for each in alternatives}
    if tuple in found and name.rpartition(".")[2].isdigit():
        return found[tuple][0]
    return found[dict][1] if dict in found else None


def _holds_more(each: Range, steps: int) -> bool:
    """Tells whether a range holds more steps, without the division, which may have no result."""
    assert each.min is not None
    assert each.max is not None
    assert each.step is not None
    if each.sampling == "log":
        return math.log(each.max) - math.log(each.min) > steps * math.log(each.step)
    low, high, step = (decimal.Decimal(str(number)) for number in (each.min, each.max, each.step))
    return high - low > steps * step


def count_steps(each: Range, whole: bool = False) -> int:
    """Returns how many steps lie between the ends; in decimals, as 0.3 is three times 0.1 and no less.

    Args:
        each: With both ends; without a step it is of whole numbers.
    """
    assert each.min is not None
    assert each.max is not None
    assert each.step is not None or whole
    if each.sampling == "log" and each.step is not None:
        # Difference of logarithms, because the quotient may be too large for a float.
        return int((math.log(each.max) - math.log(each.min)) / math.log(each.step) + 1e-8)
    low, high, step = (decimal.Decimal(str(number)) for number in (each.min, each.max, each.step or 1))
    return int((high - low) // step)


def stepped_values(each: Range) -> list[float]:
    """Returns the values of a linear range with a step, as one would write them: 0.3, and no 0.30000000000000004."""
    low, step = (decimal.Decimal(str(number)) for number in (each.min, each.step))
    return [float(low + index * step) for index in range(count_steps(each) + 1)]


def checked_values(name: str, each: Range) -> tuple[Any, ...]:
    """Returns what is tried of a range before a tuning: all of a list, or of a few values; else both ends and others.

    Args:
        each: Its values, about which `check_range` has nothing to say.
    """
    whole = is_whole(name, each)
    if each.values or (each.step is None and not whole):
        return each.extremes
    if each.sampling == "log" and each.step is not None:
        assert each.min is not None
        assert each.max is not None
        first, factor, end, last = each.min, each.step, each.max, count_steps(each)

        def value(index: int) -> Any:
            # 1e-5 * 10**8 is 1000.0000000000001.
            return min(first * factor**index, end)

    else:
        low, step = (decimal.Decimal(str(number)) for number in (each.min, each.step or 1))
        last = count_steps(each.copy(update={"sampling": "linear"}), whole)

        def value(index: int) -> Any:
            return (int if whole else float)(low + index * step)

    few: Sequence[int] = range(last + 1)
    if last >= _FEW:
        # Neighbours are odd and even; those between are as far apart as the ends allow.
        between = [last * part // _PARTS for part in range(1, _PARTS)]
        few = sorted({0, 1, *between, last - 1, last})
    return tuple(map(value, few))


def _count(each: Range, whole: bool) -> Optional[int]:
    if each.values:
        return len(each.values)
    if each.min is None or each.max is None or (each.step is None and not whole):
        return None
    if each.sampling == "log" and each.step is None:
        return None
    return count_steps(each, whole) + 1
