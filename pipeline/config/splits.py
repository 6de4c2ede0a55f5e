"""The syntax of TFDS split expressions, checked without TensorFlow Datasets.

See https://www.tensorflow.org/datasets/splits.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

EXAMPLES = "a TFDS split expression such as train, train[:90%], train[10000:], train[:5%]+train[95%:]"

# The end of a split, for each unit in which positions are compared.
_ENDS = {"%": 100.0, "": math.inf}
_Bound = tuple[float, Optional[str]]

_PART = re.compile(r"^(?P<name>[\w-]+)(\[(?P<selector>[\d\w%:.-]+)\])?$")
_BOUND = re.compile(r"^(?:(?P<value>-?\d[\d_]*(?P<fraction>\.\d+)?)(?P<unit>%|shard)?)?$")


def reject_split(expression: str) -> str:
    """Says why TFDS would not take a split expression, as far as its text tells.

    Args:
        expression: For example `train[:90%]+test`.

    Returns:
        The reason, or an empty text.
    """
    if "ReadInstruction" in expression:
        return "tfds.core.ReadInstruction is not supported in a declaration"
    return next((reason for part in expression.split("+") if (reason := _reject_part(part.strip()))), "")


def split_names(expression: str) -> list[str]:
    """Returns the names of the splits in an expression."""
    return [part.strip().partition("[")[0] for part in expression.split("+")]


def suggest_splits(names: Sequence[str], test: bool = False) -> str:
    """Returns what to write for a data set with these splits.

    Args:
        test: Whether to name a third one for the Evaluator.
    """
    train = "train" if "train" in names else names[0]
    known = [name for name in ("test", "validation", "valid", "val", "eval", "dev") if name in names]
    others = [name for name in dict.fromkeys([*known, *names]) if name != train]
    if test and not others:
        return f"splits: {{train: '{train}[:80%]', eval: '{train}[80%:90%]', test: '{train}[90%:]'}}"
    if not test and others:
        return f"splits: {{train: '{train}', eval: '{others[0]}'}}"
    if test and others[1:]:
        return f"splits: {{train: '{train}', eval: '{others[1]}', test: '{others[0]}'}}"
    third = f", test: '{others[0]}'" if test else ""
    return f"splits: {{train: '{train}[:90%]', eval: '{train}[90%:]'{third}}}"


def find_overlap(one: str, other: str) -> str:
    """Says what two split expressions both hold, as far as their text tells.

    Ranges in percent are compared with each other, and so are those in numbers from the start; a whole split holds all
    of its parts. The rest shows when the data set is opened.

    Args:
        one: For example `train[:80%]`; no expression that `reject_split` refuses.

    Returns:
        A split expression, such as `train[70%:80%]`, or an empty text.
    """
    pairs = itertools.product(_ranges(one), _ranges(other))
    return next((shared for first, second in pairs if (shared := first.shared(second))), "")


@dataclass(frozen=True)
class _Range:
    """One part of an expression; its unit is None where its bounds cannot be compared with others."""

    text: str
    name: str
    unit: Optional[str]
    low: float
    high: float

    def is_all_of(self, name: str) -> bool:
        whole = self.unit is not None and (self.low, self.high) == (0, _ENDS[self.unit])
        return self.name == "all" or (self.name == name and whole)

    def shared(self, other: _Range) -> str:
        if self.is_all_of(other.name):
            return other.text
        if other.is_all_of(self.name):
            return self.text
        low, high = max(self.low, other.low), min(self.high, other.high)
        if self.name != other.name or self.unit is None or self.unit != other.unit or low >= high:
            return ""
        return f"{self.name}[{_bound(low, self.unit)}:{_bound(high, self.unit)}]"


def _bound(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return ""
    return f"{round(value, 6):g}%" if unit else f"{value:.0f}"


def _ranges(expression: str) -> Iterator[_Range]:
    for part in map(str.strip, expression.split("+")):
        name, _, selector = part.rstrip("]").partition("[")
        if "shard" in selector:
            yield _Range(part, name, None, math.nan, math.nan)
            continue
        low, high = (selector or ":").split(":")
        # A start of 0 may have the one or the other.
        unit = "%" if "%" in (high or low) else ""
        if "-" in selector and not unit:
            yield _Range(part, name, None, math.nan, math.nan)
            continue
        bounds = float(low.rstrip("%") or 0), float(high.rstrip("%") or _ENDS[unit])
        # Negative percentages count from the end.
        start, stop = (value + _ENDS[unit] if value < 0 else value for value in bounds)
        yield _Range(part, name, unit, start, stop)


def _reject_part(part: str) -> str:
    match = _PART.match(part)
    if not match:
        return f"{part!r} is no split expression" if part else "a part of the expression is empty"
    selector = match["selector"]
    if selector is None:
        return ""
    if match["name"] == "all":
        return "`all` takes no slice"
    bounds = [_BOUND.match(text) for text in selector.split(":")]
    if len(bounds) > 2 or not all(bounds) or selector == ":":
        return f"[{selector}] is no slice"
    if any(bound and bound["fraction"] and bound["unit"] != "%" for bound in bounds):
        return f"[{selector}] is no slice: only percentages may be fractions"
    found = [(float(b["value"]), b["unit"]) if b and b["value"] else None for b in bounds]
    if len(found) == 1:
        return "" if found[0] and found[0][1] == "shard" else f"[{selector}] is no slice: the colon is missing"
    return _reject_range(found[0], found[1], selector)


def _reject_range(start: Optional[_Bound], stop: Optional[_Bound], selector: str) -> str:
    if start and stop and start[1] != stop[1] and start[0] != 0:
        return f"[{selector}] mixes units"
    if any(bound and bound[1] == "%" and abs(bound[0]) > 100 for bound in (start, stop)):
        return f"[{selector}] goes beyond 100%"
    low, high = start[0] if start else 0, stop[0] if stop else None
    if high == 0 or (high is not None and low >= high and (low >= 0) == (high >= 0)):
        return f"[{selector}] is empty"
    return ""
